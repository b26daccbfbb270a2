//! `doctor`: the books against the rows, and the results against the archive.

use super::{event_loop, open, print_json, told, words};
use crate::archive::Opened;
use crate::cli::DoctorArgs;
use crate::exit;
use crate::state::StateDir;
use dispatcher_core::id::TaskId;
use dispatcher_store::archive::Archive;
use dispatcher_store::{Audit, Publication, Store, upkeep};
use serde::Serialize;

/// Results in one read.
const PAGE: usize = 1000;
/// Faults that are listed.
const FAULTS_MAX: usize = 1000;

/// What `doctor --json` prints.
#[derive(Debug, Default, Serialize)]
struct Findings {
    /// Whether nothing is wrong.
    healthy: bool,
    /// Whether a process works on it now, so that the latest may be under way.
    working: bool,
    /// What is wrong, in words; at most 1,000.
    faults: Vec<String>,
    /// What is no fault and good to know, in words.
    remarks: Vec<String>,
    /// How many faults there are in all.
    count: u64,
    /// Results that were compared with the archive.
    results_checked: u64,
    /// Whether checksums were compared too.
    deep: bool,
    /// The books.
    books: Audit,
}

impl Findings {
    fn add(&mut self, fault: String) {
        self.count += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }
}

/// Checks everything.
pub fn doctor(args: &DoctorArgs) -> anyhow::Result<u8> {
    let findings = event_loop()?.block_on(async {
        let (state, store) = open(&args.at.state).await?;
        let mut findings = Findings { working: state.is_locked(), deep: args.deep, ..Findings::default() };
        findings.books = store.audit().await.map_err(told)?;
        for line in findings.books.differences.clone() {
            findings.add(format!("the books say {} {}, the rows say {}", line.counted, line.what, line.found));
        }
        let opened = crate::archive::open(&state)?;
        check_results(&*opened.archive(), &store, args.deep, &mut findings).await?;
        if let Opened::Packs(packs) = &opened {
            let missing = upkeep::missing(packs, &store).await.map_err(told)?;
            // Those that are a loss are faults of the tasks whose results they had.
            findings.remarks.extend(missing.iter().filter(|missing| !missing.is_loss()).map(ToString::to_string));
        }
        anyhow::Ok(findings)
    })?;
    let findings = Findings { healthy: findings.count == 0, ..findings };
    if args.at.json {
        print_json(&findings)?;
    } else {
        print(&findings, args);
    }
    Ok(if findings.healthy { exit::ALL_USABLE } else { exit::SOME_NOT })
}

/// Compares every result that stands with the archive.
async fn check_results(
    archive: &dyn Archive,
    store: &dyn Store,
    deep: bool,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let mut after = TaskId(0);
    loop {
        let page = store.standing_parts(after, PAGE).await.map_err(told)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.lease.task;
        for publication in page {
            findings.results_checked += 1;
            let task = publication.lease.task;
            for fault in faults_of(archive, store, publication, deep).await? {
                findings.add(format!("task {task}: {fault}"));
            }
        }
    }
}

/// What is wrong with a result. One that was replaced, published or moved to another pack since its row was read is looked
/// at again.
async fn faults_of(
    archive: &dyn Archive,
    store: &dyn Store,
    mut publication: Publication,
    deep: bool,
) -> anyhow::Result<Vec<String>> {
    loop {
        let faults = archive.check(&publication, deep).unwrap_or_else(|e| vec![e.to_string()]);
        if faults.is_empty() {
            return Ok(faults);
        }
        let task = publication.lease.task;
        let now = store.standing_parts(TaskId(task.0 - 1), 1).await.map_err(told)?.pop();
        match now.filter(|now| now.lease.task == task) {
            // Nothing stands any more, as in a new run: nothing can be missing.
            None => return Ok(Vec::new()),
            Some(now) if now == publication => return Ok(faults),
            Some(now) => publication = now,
        }
    }
}

/// The books as a sum.
fn in_words(books: &Audit) -> String {
    let mut parts: Vec<String> = books.endings.iter().map(|(ending, n)| format!("{n} {}", ending.as_str())).collect();
    if books.dispatched == 0 && books.out == 0 && parts.is_empty() {
        return "0 attempts so far".to_owned();
    }
    parts.push(format!("{} still out", books.out));
    format!("{} = {}", words::attempts(books.dispatched), parts.join(" + "))
}

/// For a person.
fn print(findings: &Findings, args: &DoctorArgs) {
    for fault in &findings.faults {
        crate::tell(fault);
    }
    let more = findings.count.saturating_sub(findings.faults.len() as u64);
    if more > 0 {
        crate::tell(&format!("and {more} more"));
    }
    for remark in &findings.remarks {
        crate::tell(remark);
    }
    let books = &findings.books;
    crate::tell(&format!("books: {}", in_words(books)));
    let how =
        if findings.deep { "present, of the right length and checksum" } else { "present and of the right length" };
    if findings.healthy {
        crate::tell(&format!("healthy: the books balance, and {} results are {how}", findings.results_checked));
    } else {
        crate::tell(&format!("{} faults in {} results and the books", findings.count, findings.results_checked));
        let at = args.at.state.display();
        crate::tell(&if StateDir::find(&args.at.state).is_ok_and(|state| state.identity().exists()) {
            format!(
                "to compute lost results anew, give the same `dispatcher run` again with --again missing (results folder {at})"
            )
        } else {
            format!("to compute lost results anew, name their tasks: `dispatcher rerun ID … --state {at}`")
        });
    }
    if findings.working {
        crate::tell("a dispatcher is at work: what it did in this moment may show as a fault; ask again");
    }
}
