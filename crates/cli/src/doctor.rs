//! `assent doctor`: asks the resources of a configuration, and prints what was found.
//!
//! Walk: the configuration's resources become patients · all are asked at once · one table, or one JSON object · the
//! worst finding is the exit code.
//! Deliberately absent: what is asked and how it is judged (`assent_resources::doctor`).

use std::process::ExitCode;
use std::sync::Arc;

use assent_kind::Kind;
use assent_resources::doctor::{self, Engine, Finding, NoFacts, PATIENCE, Patient, Severity};
use assent_world::{Clock, RealClock};
use comfy_table::ContentArrangement;
use serde::Serialize;

use crate::args::Doctor;
use crate::bench::{print_json, table};
use crate::config::{Config, Resource};
use crate::failure::Failure;
use crate::say::plain;

/// Sentences are wrapped so that the table fits; a script takes the JSON.
const COLUMNS: u16 = 120;

#[derive(Serialize)]
struct Report<'a> {
    findings: Vec<Row<'a>>,
    worst: &'static str,
}

#[derive(Serialize)]
struct Row<'a> {
    resource: &'a str,
    severity: &'static str,
    what: &'a str,
    /// Nothing where nothing has to be done.
    advice: Option<&'a str>,
}

impl<'a> From<&'a Finding> for Row<'a> {
    fn from(finding: &'a Finding) -> Self {
        let advice = Some(finding.advice.as_str()).filter(|advice| !advice.is_empty());
        Self { resource: &finding.resource, severity: finding.severity.name(), what: &finding.what, advice }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Doctor, json: bool) -> Result<ExitCode, Failure> {
    let config = Config::load(&arguments.config, &[])?;
    let patients: Vec<_> = config.resources.iter().filter(|it| it.kind != "own").map(patient).collect();
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let findings = doctor::judge(&doctor::examine(&patients, PATIENCE, &clock));
    let worst = doctor::worst(&findings);
    if json {
        print_json(&Report { findings: findings.iter().map(Row::from).collect(), worst: worst.name() })?;
    } else if findings.is_empty() {
        say!("{} names no [[resource]]: nothing to ask", arguments.config.display())?;
    } else {
        print_table(&findings)?;
    }
    Ok(exit_code(worst, arguments.strict))
}

fn patient(resource: &Resource) -> Patient {
    let engine = match resource.kind.as_str() {
        "postgres" => Engine::Postgres,
        "mariadb" => Engine::Mariadb,
        _ => Engine::Store,
    };
    let url = resource.url().map_err(|failure| NoFacts { kind: failure.kind, message: failure.message });
    Patient { name: resource.name.clone(), engine, url }
}

fn print_table(findings: &[Finding]) -> Result<(), Failure> {
    let mut table = table(&["resource", "", "what", "what to do"]);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(COLUMNS);
    let mut before = "";
    for finding in findings {
        // Each name once, so that the eye finds where the next begins.
        let name = if finding.resource == before { "" } else { &finding.resource };
        before = &finding.resource;
        // Servers' own words are among them.
        table.add_row([name, finding.severity.name(), &plain(&finding.what), &plain(&finding.advice)]);
    }
    say!("{table}")
}

/// A wrong setting has to be changed whatever else is so; an unreachable resource may be asked again.
fn exit_code(worst: Severity, is_strict: bool) -> ExitCode {
    match worst {
        Severity::Warning if is_strict => Kind::Invalid.exit_code().into(),
        Severity::Ok | Severity::Note | Severity::Warning => ExitCode::SUCCESS,
        Severity::Unreachable => Kind::Unavailable.exit_code().into(),
        Severity::Error => Kind::Invalid.exit_code().into(),
    }
}
