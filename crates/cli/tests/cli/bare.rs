//! `scripts/servers` on a machine without database servers: who cannot install them is told what to do, in one sentence.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::Path;
use std::process::Command;

use super::assent::write;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/servers");

/// Where servers may be is empty, and what is left of the system's programs is found in one folder.
const HIDDEN: &str = r#"
set -e
for folder in /usr/lib/postgresql /usr/local/sbin /usr/sbin; do
    if [ -d "$folder" ]; then mount -t tmpfs -o mode=755 tmpfs "$folder"; fi
done
exec "$@"
"#;

/// The exit code, and what it said, where only these programs are.
fn on_a_bare_machine(programs: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", HIDDEN, "sh", "env"])
        .arg(format!("PATH={}", programs.display()))
        .args(arguments);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Links to what the system has, but for its package manager and its servers.
fn programs(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    for entry in ["/bin", "/usr/bin"].iter().flat_map(|from| std::fs::read_dir(from).unwrap()).map(Result::unwrap) {
        let name = entry.file_name();
        if !["apt-get", "postgres", "mariadbd", "mysqld", "pgbouncer"].iter().any(|it| name == **it) {
            // The same program may be in both.
            _ = std::os::unix::fs::symlink(entry.path(), folder.join(name));
        }
    }
}

#[test]
#[allow(clippy::print_stderr, reason = "what is not tested is said aloud")]
fn a_machine_that_cannot_have_servers_is_told_so_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    // Another account is to find them, too.
    assert!(Command::new("chmod").arg("755").arg(folder.path()).status().unwrap().success());
    let [none, offline] = ["none", "offline"].map(|name| folder.path().join(name));
    programs(&none);
    programs(&offline);
    if on_a_bare_machine(&none, &["true"]).0 != Some(0) {
        eprintln!("NOT TESTED: a machine without servers, for mount is not allowed here (run as root)");
        return;
    }
    write(&offline.join("apt-get"), "#!/bin/sh\necho 'Temporary failure resolving' >&2\nexit 100\n");
    assert!(Command::new("chmod").arg("755").arg(offline.join("apt-get")).status().unwrap().success());
    let there = folder.path().to_str().unwrap();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    for (programs, prefix, verb, said) in [
        (&none, &[][..], &["install"][..], "there is no apt-get; install postgresql mariadb-server by hand"),
        (
            &offline,
            &nobody,
            &["install"],
            "install them with: sudo apt-get install -y --no-install-recommends postgresql",
        ),
        (&offline, &[], &["install"], "apt-get could not install postgresql-common; its reason is above"),
        (&none, &[], &["start", there], "PostgreSQL's binaries are missing; run: servers install"),
        (&none, &[], &["start", there, "mariadb"], "MariaDB's binaries are missing; run: servers install"),
    ] {
        let (code, stderr) = on_a_bare_machine(programs, &[prefix, &[SCRIPT], verb].concat());
        assert_eq!(code, Some(8), "{verb:?}: {stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.contains(said), "{verb:?} should say {said:?}: {stderr}");
    }
}
