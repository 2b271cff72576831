//! Commands of assets, done twice, and a snapshot of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assent_assets::fuzzing::fuzz_commands(bytes);
    assent_assets::fuzzing::fuzz_run(bytes);
    assent_assets::fuzzing::fuzz_image(bytes);
});
