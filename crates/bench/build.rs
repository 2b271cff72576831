//! Tells the crate which compiler builds it: a figure without it cannot be repeated.

use std::process::Command;

fn main() {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let said = Command::new(compiler).arg("--version").output().ok();
    let version = said.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    // The build script's own way to speak to cargo.
    print!("cargo::rustc-env=ASSENT_RUSTC={}\ncargo::rerun-if-changed=build.rs\n", version.trim());
}
