//! The server itself: version, configuration, log level.

use crate::house::{Rules, house};

#[test]
fn the_server_tells_its_version_and_its_configuration_and_takes_another_log_level() {
    let house = house(Rules::default());
    let version = house.get("/v1/version").json();
    assert_eq!(
        (version["version"].as_str().unwrap(), version["kv"].as_bool()),
        (env!("CARGO_PKG_VERSION"), Some(true))
    );
    assert!(version["coordinator"]["epoch"].as_u64().is_some(), "{version}");
    assert_eq!(house.get("/v1/config").json(), serde_json::json!({"data_dir": "data"}));
    assert_eq!(house.get("/v1/log-level").json()["level"], "info");
    assert_eq!(house.ask("PUT", "/v1/log-level", &[], br#"{"level":"debug"}"#).json()["level"], "debug");
    assert_eq!(house.get("/v1/log-level").json()["level"], "debug");
    for wrong in [r#"{"level":"loud"}"#, r#"{"level":7}"#, r#"{"level":"info","more":1}"#, "", "{"] {
        assert_eq!(house.ask("PUT", "/v1/log-level", &[], wrong.as_bytes()).status, 400, "{wrong}");
    }
    assert_eq!(house.get("/v1/version?colour=red").status, 400);
}
