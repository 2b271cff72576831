//! HTTP as people meet it: the README's session with curl, users of a file that is read again, refusals at the start, and a
//! server that is killed with a transaction open.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::Path;
use std::process::{Command, Stdio};

use assent_world::{Clock as _, RealClock};
use rustix::process::Signal;

use super::assent::{command, fails, write};
use super::served::{Served, serve, start};
use super::tour::{blocks, shell};

/// Like the README's, on ports that are free.
fn configure(folder: &Path, more: &str) {
    let text = format!(
        "data_dir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[coordinator]\n[kv]\n\
         [[resource]]\nname = \"store\"\nkind = \"own\"\nurl = \"kv\"\n{more}"
    );
    write(&folder.join("assent.toml"), &text);
}

fn curl(folder: &Path, served: &Served, script: &str) -> String {
    let docs = served.docs.as_deref().unwrap_or_default();
    shell(folder, "", &format!("admin=http://{} docs=http://{docs}\n{script}", served.admin))
}

#[test]
fn the_session_with_curl_works_as_it_stands_in_the_readme() {
    let blocks = blocks("Five minutes over HTTP");
    let [begin, commands] = &blocks[..] else { panic!("two blocks: {blocks:?}") };
    let folder = tempfile::tempdir().unwrap();
    let (begin, server) = begin.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(server, "assent serve --config both/assent.toml &");
    shell(folder.path(), "", begin);
    let both = folder.path().join("both");
    #[allow(clippy::disallowed_methods, reason = "a test looks at what the session wrote")]
    let written = std::fs::read_to_string(both.join("assent.toml")).unwrap();
    assert_eq!(
        written,
        "data_dir = \"data\"\n[coordinator]\n[kv]\n[documents]\n[[resource]]\nname = \"keys\"\nkind = \"own\"\nurl = \"kv\"\n\
         [[resource]]\nname = \"documents\"\nkind = \"own\"\nurl = \"docs\"\n"
    );
    configure(&both, DOCUMENTS);
    let served = serve(&both);
    assert!(commands.lines().count() <= 10, "ten lines");
    let (places, commands) = commands.split_once('\n').unwrap();
    assert_eq!(places, "admin=http://127.0.0.1:7431 docs=http://127.0.0.1:9443");
    let said = curl(folder.path(), &served, commands);
    let first = "{\"stock\":10,\"price\":1.50}";
    for expected in ["\"state\":\"open\"", "\"writes\":2", "\"state\":\"committed\"", "{\"stock\":8,\"price\":1.50}"] {
        assert!(said.contains(expected), "{expected:?} in {said}");
    }
    assert_eq!(said.matches(first).count(), 2, "told when it is made, and as long as nobody has committed: {said}");
    let tx = |piece: &str| piece.split_once("\"tx\":\"")?.1.split_once('"').map(|(tx, _)| tx.to_owned());
    let told: Vec<_> = said.split('}').filter_map(tx).collect();
    assert_eq!(told[told.len() - 1], told[told.len() - 2], "sent again, it is the same transaction: {said}");
    let script = "curl -sf $admin/v1/keys/0?values=true; curl -sf $docs/shop/pen/history";
    let said = curl(folder.path(), &served, script);
    assert!(said.contains("order/7") && said.contains("order/8") && said.contains("\"revision\":3"), "{said}");
    assert!(!said.contains("\"revision\":4"), "{said}");
    served.stop();
}

/// Documents, as a resource too.
const DOCUMENTS: &str = "[documents]\n[docs]\nlisten = \"127.0.0.1:0\"\n[[resource]]\nname = \"documents\"\nkind = \"own\"\n\
                         url = \"docs\"\n";

#[test]
fn a_server_that_dies_in_the_middle_of_a_commit_has_both_the_document_and_the_key_or_neither() {
    for stop in [
        "client-before-prepare",
        "client-between-prepares",
        "client-before-decision",
        "client-after-decision",
        "client-between-commits",
        "client-before-finished",
    ] {
        let folder = tempfile::tempdir().unwrap();
        configure(folder.path(), &format!("{DOCUMENTS}[http]\nrequest_ms = 3600000\n"));
        let file = folder.path().join("assent.toml");
        let mut serving = command(&["serve", "--config", file.to_str().unwrap()]);
        let served = start(serving.env("ASSENT_STOP", stop));
        let one = "curl -s -o told -m 120 -w '%{http_code}' -H 'Idempotency-Key: sale' -d '{\"commit\":true,\"writes\":[\
                   {\"key\":\"order\",\"value\":\"a pen\",\"if\":\"absent\"},{\"document\":\"shop/pen\",\"put\":[1]}]}' \
                   $admin/v1/transactions";
        curl(folder.path(), &served, &format!("curl -sf -X PUT $docs/shop\n( {one} > code ) > noise 2>&1 & true"));
        served.freezes();
        served.kill();
        let served = serve(folder.path());
        // Recovery takes a moment: until then nobody is told that it is not done. Then it is told, or done now, and never twice.
        let until = RealClock.now().after(std::time::Duration::from_secs(60));
        let code = loop {
            match curl(folder.path(), &served, one).as_str() {
                "409" | "429" | "503" if RealClock.now() < until => {
                    RealClock.sleep(std::time::Duration::from_millis(20))
                }
                code => break code.to_owned(),
            }
        };
        let script = "cat told; curl -sf $docs/shop/pen/history; curl -sf $admin/v1/keys/0/order";
        let told = curl(folder.path(), &served, script);
        assert_eq!(code, "200", "{stop}: {told}");
        assert!(told.contains("\"revision\":1") && told.ends_with("a pen"), "{stop}: {told}");
        assert!(!told.contains("\"revision\":2"), "{stop}: {told}");
        let again = curl(folder.path(), &served, &format!("{one} -D - | grep -ci idempotency-replayed"));
        assert_eq!(again.trim(), "1", "{stop}");
        let history = curl(folder.path(), &served, "curl -sf $admin/v1/history");
        assert_eq!(history.matches("\"outcome\":\"committed\"").count(), 1, "{stop}: {history}");
        served.stop();
    }
}

#[test]
fn a_transaction_whose_server_dies_before_its_end_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let script = "tx=$(curl -sf -X POST $admin/v1/transactions | sed 's/.*\"tx\":\"\\([^\"]*\\)\".*/\\1/')\n\
                  curl -sf -X PUT -d 1 \"$admin/v1/keys/0/half?tx=$tx\" && curl -sf -X PUT -d 1 $admin/v1/keys/0/whole";
    curl(folder.path(), &served, script);
    served.kill();
    let served = serve(folder.path());
    let script = "curl -s -o /dev/null -w '%{http_code} ' $admin/v1/keys/0/half; curl -sf $admin/v1/keys/0/whole";
    assert_eq!(curl(folder.path(), &served, script), "404 1");
    // Its keys are nobody's any more.
    let script = "curl -sf -X PUT -d 2 $admin/v1/keys/0/half; curl -sf $admin/v1/keys/0/half";
    assert_eq!(curl(folder.path(), &served, script), "2");
    served.stop();
}

fn hash(password: &str) -> String {
    let mut child = command(&["password"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), password.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn users_of_a_file_log_in_and_a_hangup_reads_the_file_again() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "[identity]\nmode = \"users\"\nusers_file = \"users.toml\"\n");
    let users = folder.path().join("users.toml");
    let list = |names: &[&str]| {
        let of = |name: &&str| {
            format!(
                "[[user]]\nname = \"{name}\"\npassword_hash = \"{}\"\nroles = [\"view\", \"modify\"]\n",
                hash("secret")
            )
        };
        names.iter().map(of).collect::<String>()
    };
    write(&users, &list(&["anna"]));
    let served = serve(folder.path());
    let login = |name: &str| {
        let script = format!(
            "curl -s -o token -w '%{{http_code}}' -d '{{\"username\":\"{name}\",\"password\":\"secret\",\"grant_type\":\"password\"}}' \
             $admin/token"
        );
        curl(folder.path(), &served, &script)
    };
    assert_eq!((login("bert").as_str(), login("anna").as_str()), ("401", "200"));
    let with = "curl -s -o /dev/null -w '%{http_code} ' -H \"Authorization: Bearer $(sed 's/.*access_token\":\"\\([^\"]*\\)\".*/\\1/' token)\"";
    let asked = curl(
        folder.path(),
        &served,
        &format!(
            "{with} -X PUT -d 1 $admin/v1/keys/0/a; {with} $admin/v1/config; curl -s -o /dev/null -w '%{{http_code}}' $admin/v1/keys/0/a"
        ),
    );
    assert_eq!(asked, "204 403 401");
    write(&users, &list(&["bert"]));
    served.signal(Signal::HUP);
    let until = RealClock.now().after(std::time::Duration::from_secs(60));
    while login("bert") != "200" {
        assert!(RealClock.now() < until, "the file is not read again");
    }
    assert_eq!(login("anna"), "401");
    // A file that is broken is said, and changes nothing.
    write(&users, "[[user]]\nname = 7\n");
    served.signal(Signal::HUP);
    assert_eq!(login("bert"), "200");
    served.stop();
}

#[test]
fn a_server_does_not_stand_outside_without_identity_and_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("assent.toml");
    let outside = "data_dir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n[kv]\n[admin]\nlisten = \"0.0.0.0:0\"\n";
    write(&file, outside);
    let serve = ["serve", "--config", file.to_str().unwrap()];
    fails(&serve, 6, "without identity and TLS");
    let user = format!(
        "[identity]\nmode = \"users\"\n[[identity.user]]\nname = \"anna\"\npassword_hash = \"{}\"\n",
        hash("x")
    );
    write(&file, &format!("{outside}{user}"));
    fails(&serve, 6, "without TLS: write [tls]");
    // With both it stands there, and speaks TLS only.
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-keyout", "key.pem", "-out", "chain.pem"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    write(&file, &format!("{outside}{user}[tls]\ncertificate = \"chain.pem\"\nkey = \"key.pem\"\n"));
    let served = super::served::serve(folder.path());
    let port = served.admin.rsplit_once(':').unwrap().1.to_owned();
    let script = format!(
        "curl -s --cacert chain.pem https://localhost:{port}/v1/health/live; curl -s http://localhost:{port}/health || echo refused"
    );
    let said = shell(folder.path(), "", &script);
    assert!(said.contains("\"ok\"") && said.contains("refused"), "{said}");
    served.stop();
}

#[test]
fn the_configuration_is_shown_without_secrets_and_the_log_level_changes_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    configure(
        folder.path(),
        "[[resource]]\nname = \"orders\"\nkind = \"postgres\"\nurl = \"postgresql://u:s3cret@127.0.0.1:1/d\"\n",
    );
    let served = serve(folder.path());
    let config = curl(folder.path(), &served, "curl -sf $admin/v1/config");
    assert!(config.contains("orders") && config.contains("hidden") && !config.contains("s3cret"), "{config}");
    let level = "curl -sf -X PUT -d '{\"level\":\"assent_rest=debug\"}' $admin/v1/log-level; curl -sf $admin/metrics > /dev/null";
    assert!(curl(folder.path(), &served, level).contains("assent_rest=debug"));
    served.stop();
    #[allow(clippy::disallowed_methods, reason = "a test reads what its server said")]
    let said = std::fs::read_to_string(folder.path().join("said")).unwrap();
    assert!(said.contains("path=\"/metrics\"") && said.contains("path=\"/v1/config\""), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
}
