//! The commands of the pages for those who run Sluice, taken out of them to be run.

use std::collections::BTreeSet;
use std::fs;

use sluice::api::conditions::{ConditionType, Reason};
use sluice::domain::failure::FailureClass;

use crate::helm::root;

/// Stands on the line before a block that needs what a test has not.
const SKIP: &str = "<!-- not run by the tests -->";

/// The shell blocks of a page, with the heading that each stands under.
pub fn commands(page: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut heading = String::new();
    let mut before = "";
    let mut block: Option<String> = None;
    let mut blocks = Vec::new();
    for line in text.lines() {
        match &mut block {
            Some(_) if line == "```" => blocks.extend(block.take().map(|block| (heading.clone(), block))),
            Some(block) => *block += &format!("{line}\n"),
            None if line == "```sh" && before != SKIP => block = Some(String::new()),
            None => {}
        }
        if let Some(title) = line.strip_prefix("## ").filter(|_| block.is_none()) {
            heading = title.to_owned();
        }
        before = line;
    }
    blocks
}

/// Conditions that are as they should be, or that say no more than that something is on its way: nobody looks for help.
const PLAIN: [Reason; 23] = [
    Reason::Accepted,
    Reason::UpToDate,
    Reason::InProgress,
    Reason::Claimed,
    Reason::FollowOnRunning,
    Reason::CancelRequested,
    Reason::NotAsked,
    Reason::Completed,
    Reason::PartlyCompleted,
    Reason::Failed,
    Reason::Cancelled,
    Reason::Ended,
    Reason::Expired,
    Reason::NotHeld,
    Reason::DeliveryAllowed,
    Reason::TemplateAccepted,
    Reason::MatchesDemand,
    Reason::DemandRose,
    Reason::DemandFell,
    Reason::DriftCorrected,
    Reason::HeldByPolicy,
    Reason::AtMinimum,
    Reason::WorkersStarting,
];

/// What stands between backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    let outside_of_blocks = text.split("```").step_by(2);
    outside_of_blocks.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn troubleshooting_knows_every_reason_and_class_and_no_other() {
    let text = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let quoted = quoted(&text);
    for reason in Reason::ALL.iter().filter(|reason| !PLAIN.contains(reason)) {
        assert!(quoted.contains(reason.as_str()), "the reason {reason} is not explained");
    }
    for class in FailureClass::ALL.iter().filter(|class| **class != FailureClass::Cancelled) {
        assert!(quoted.contains(class.as_str()), "the failure class {} is not explained", class.as_str());
    }
    let conditions = ConditionType::ALL.iter().map(|type_| type_.as_str());
    let known: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).chain(conditions).collect();
    // Kubernetes' own.
    let others = ["CreateContainerConfigError", "ErrImagePull", "CancelAndWait", "None"];
    let is_reason = |word: &&str| {
        word.chars().next().is_some_and(char::is_uppercase) && word.chars().all(char::is_alphanumeric) && word.len() > 3
    };
    for word in quoted.into_iter().filter(is_reason).filter(|word| !others.contains(word)) {
        assert!(known.contains(word), "{word} is no reason or condition");
    }
}

/// Of a heading of any level.
fn heading(line: &str) -> Option<&str> {
    line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
}

#[test]
fn links_of_the_pages_lead_somewhere() {
    let docs = root().join("docs");
    let pages = fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for page in pages.filter(|page| page.ends_with(".md")) {
        let text = fs::read_to_string(docs.join(&page)).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        // A field's pattern is no link.
        for link in links.filter(|link| !link.starts_with("http") && !link.contains('[')) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = docs.join(if file.is_empty() { &page } else { file });
            assert!(target.exists(), "{page}: {link}");
            let is_there = || {
                let target = fs::read_to_string(&target).unwrap();
                target.lines().filter_map(heading).map(super::dashboards::anchor).any(|heading| heading == anchor)
            };
            assert!(anchor.is_empty() || is_there(), "{page}: {link}");
        }
    }
}

#[test]
fn pages_have_commands_to_be_run() {
    for page in ["docs/install.md", "docs/rbac.md", "docs/troubleshooting.md"] {
        assert!(!commands(page).is_empty(), "{page}");
    }
}
