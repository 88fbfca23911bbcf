use super::*;
use crate::worker::reporter::Reporter;

const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(10);

fn attempt(number: i32) -> Attempt {
    Attempt { track_id: Uuid::nil(), number }
}

fn entry(now: Instant, timeout: Duration) -> Entry {
    Entry {
        task_type: TaskType::Insert,
        timeout_secs: 60,
        stop: Arc::default(),
        reporter: Reporter { unsent: Arc::default(), dirty: Arc::default() },
        lease: LEASE,
        lease_until: now + LEASE,
        deadline: now + timeout,
        started: now,
        span: Span::none(),
        phase: Phase::Running { stopping_since: None, aborted_at: None },
        is_reporting: false,
        end_after_report: None,
    }
}

fn holding(now: Instant, timeout: Duration) -> Held {
    let mut held = Held::default();
    held.insert_all(vec![(attempt(1), entry(now, timeout))]);
    held
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// What is due, in words, and in how many seconds the next thing is.
fn look(held: &Held, start: Instant, at: Duration) -> (Vec<String>, Option<u64>) {
    let (due, next) = held.due(start + at, GRACE);
    let words = due.iter().map(|due| match due {
        Due::Fire(_, cause) => format!("{cause:?}"),
        Due::Abort(_) => "abort".to_owned(),
        Due::GiveUp(_) => "give up".to_owned(),
    });
    (words.collect(), next.map(|next| (next - start).as_secs()))
}

#[test]
fn an_unrenewed_lease_stops_its_handler_before_it_ends() {
    let start = Instant::now();
    let mut held = holding(start, secs(7_200));

    assert_eq!(look(&held, start, secs(24)), (vec![], Some(25)));
    assert_eq!(look(&held, start, secs(25)), (vec!["LeaseOver".to_owned()], None));

    assert_eq!(held.renewed(attempt(1), LeaseAnswer::Renewed, start + secs(10)), None);
    assert_eq!(look(&held, start, secs(25)), (vec![], Some(35)));
}

#[test]
fn a_deadline_fires_once_and_then_the_handler_is_aborted_and_given_up() {
    let start = Instant::now();
    let mut held = holding(start, secs(5));
    assert_eq!(look(&held, start, secs(5)), (vec!["Timeout".to_owned()], None));

    assert!(held.fire(attempt(1), StopCause::Timeout, start + secs(5)));
    assert!(!held.fire(attempt(1), StopCause::Cancel, start + secs(6)));
    assert_eq!(look(&held, start, secs(14)), (vec![], Some(15)));
    assert_eq!(look(&held, start, secs(15)), (vec!["abort".to_owned()], None));

    if let Phase::Running { aborted_at, .. } = &mut held.get_mut(attempt(1)).unwrap().phase {
        *aborted_at = Some(start + secs(15));
    }
    assert_eq!(look(&held, start, secs(16)), (vec!["give up".to_owned()], None));
}

#[test]
fn a_lease_that_ends_leaves_less_time_to_stop() {
    let start = Instant::now();
    let mut held = holding(start, secs(7_200));
    held.fire(attempt(1), StopCause::LeaseOver, start + secs(25));

    assert_eq!(look(&held, start, secs(28)), (vec!["abort".to_owned()], None));
}

#[test]
fn heartbeats_name_everything_but_what_is_lost() {
    let start = Instant::now();
    let mut held = holding(start, secs(60));
    held.insert_all(vec![(attempt(2), entry(start, secs(60)))]);
    held.insert_all(vec![(attempt(3), entry(start, secs(60)))]);
    held.set_ending(attempt(2));
    assert_eq!(held.renewed(attempt(3), LeaseAnswer::Lost, start), Some(StopCause::Lost));
    held.fire(attempt(3), StopCause::Lost, start);

    let (_, mut named) = held.to_renew();
    named.sort_unstable();
    assert_eq!(named, [attempt(1), attempt(2)]);
    assert_eq!(held.to_watch().len(), 1);
}

#[test]
fn a_heartbeat_speaks_for_the_claims_whose_reply_is_here() {
    let mut held = Held::default();
    assert_eq!(held.to_renew().0, 1);
    assert_eq!(held.claim_sent(), 1);
    assert_eq!(held.to_renew().0, 1, "claim 1 is on its way");
    assert_eq!(held.claim_sent(), 2);
    assert_eq!(held.to_renew().0, 1, "what claim 1 took is on its way to disk, and claim 2 was sent");
    held.claim_answered(1);
    assert_eq!(held.to_renew().0, 2, "what claim 1 took is in the table, or never came");
    held.claim_answered(2);
    assert_eq!(held.to_renew().0, 3);
    assert_eq!(held.adopt_sent(), 0);
    assert_eq!(held.to_renew().0, 0);
}

#[test]
fn slots_and_ends_are_counted_apart() {
    let start = Instant::now();
    let mut held = holding(start, secs(60));
    held.reserve(2);
    assert_eq!((held.occupied(), held.len()), (2, 1), "what was claimed has its slot before it is here");
    held.insert_all(vec![(attempt(2), entry(start, secs(60)))]);

    held.handlers_gone(1);
    held.set_ending(attempt(1));
    held.set_ending(attempt(1));
    assert_eq!((held.occupied(), held.ending(), held.running(), held.len()), (1, 1, 1, 2));

    // Given up: its handler still takes the slot.
    held.set_ending(attempt(2));
    held.remove(attempt(1));
    held.remove(attempt(2));
    assert_eq!((held.occupied(), held.ending(), held.len()), (1, 0, 0));
}

#[test]
fn only_the_newest_attempt_of_a_task_is_spoken_to() {
    let start = Instant::now();
    let mut held = holding(start, secs(60));
    held.insert_all(vec![(attempt(7), entry(start, secs(60)))]);

    assert_eq!(held.newest_of(Uuid::nil()), Some(attempt(7)));
    assert_eq!(held.newest_of(Uuid::max()), None);
}
