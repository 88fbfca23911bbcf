//! The real functions: each call answers as lines of text, sorted, or with its SQLSTATE.

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::{Postgres, Row};
use uuid::Uuid;

pub type Answer = Result<Vec<String>, String>;
pub type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// The SQLSTATE of a call that another session's lock kept waiting for longer than these tests wait.
pub const BLOCKED: &str = "55P03";

/// `statement` answers one column of text.
pub async fn lines(connection: &mut PgConnection, statement: Statement<'_>) -> Answer {
    let mut lines: Vec<String> = statement
        .fetch_all(connection)
        .await
        .map_err(|error| sqlstate(&error))?
        .iter()
        .map(|row| row.get::<Option<String>, _>(0).unwrap_or_default())
        .collect();
    lines.sort();
    Ok(lines)
}

fn sqlstate(error: &sqlx::Error) -> String {
    let code = error.as_database_error().and_then(|error| error.code());
    match code.as_deref() {
        // What nobody expects must say what it is.
        Some(code @ (BLOCKED | "22023" | "P0002")) => code.to_owned(),
        _ => error.to_string(),
    }
}

pub fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// The task that a line begins with.
pub fn id_of(line: &str) -> Uuid {
    line.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("a track id begins {line:?}"))
}

pub fn second_word(line: &str) -> &str {
    line.split(' ').nth(1).unwrap_or_default()
}

pub const ENQUEUE_MANY: &str = "
    select concat_ws(' ', lpad(e.item::text, 4, '0'), e.outcome, e.track_id, t.document_id)
      from sluice.enqueue_many($1) e left join sluice.task_status t on e.outcome = 'created' and t.track_id = e.track_id";
pub const ENQUEUE: &str = "select concat_ws(' ', '0001', outcome, track_id) from sluice.enqueue($1, $2, $3, $4)";
pub const CLAIM: &str = "
    select concat_ws(' ', track_id, attempt, type, tenant, workspace, document_id, failures)
      from sluice.claim($1, $2, $3, $4)";
pub const HEARTBEAT: &str =
    "select concat_ws(' ', coalesce(track_id::text, '-'), attempt, answer) from sluice.heartbeat($1, $2, $3, $4)";
pub const WATCH: &str = "select concat_ws(' ', coalesce(track_id::text, '-'), answer) from sluice.watch($1, $2)";
pub const REPORT: &str = "select sluice.report($1, $2, $3)";
pub const COMPLETE: &str = "select sluice.complete($1, $2)";
pub const COMPLETE_WITH_NEXT: &str =
    "select concat_ws(' ', outcome, next_track_id) from sluice.complete_with_next($1, $2, $3)";
pub const COMPLETE_MANY: &str = "select concat_ws(' ', track_id, attempt, outcome) from sluice.complete_many($1, $2)";
pub const FAIL: &str = "select sluice.fail($1, $2, $3, 'why')";
pub const STOPPED: &str = "select sluice.stopped($1, $2)";
pub const RELEASE: &str = "select concat_ws(' ', track_id, attempt, outcome) from sluice.release($1, $2, 'why', $3)";
pub const CANCEL: &str = "select sluice.cancel($1, 'who', 'why', $2)";
pub const CANCEL_LINKED: &str =
    "select concat_ws(' ', track_id, outcome) from sluice.cancel_linked($1, 'who', 'why', $2)";
pub const CANCEL_ACTIVE: &str = "
    select concat_ws(' ', track_id, outcome)
      from sluice.cancel_active(jsonb_strip_nulls(jsonb_build_object('tenant', $1::text, 'class', $2::text)))";
pub const RETRY: &str = "select concat_ws(' ', outcome, track_id) from sluice.retry($1, 'who', $2)";
pub const SUSPEND: &str = "select sluice.suspend($1, 'who', $2)";
pub const RESUME: &str = "select sluice.resume($1, 'who', $2)";
pub const SET_PRIORITY: &str = "select sluice.set_priority($1, $2)";
pub const SET_LANE: &str = "select effective_max_running::text from sluice.set_lane($1, $2, $3)";
pub const HOLD_LANE: &str = "select sluice.hold_lane($1, $2, $3, 'why')";
pub const HOLD_ALL: &str = "select sluice.hold_all($1, $2)::text";
pub const SET_POOL: &str = "select sluice.set_pool($1, $2)::text";
pub const DRAIN: &str = "select sluice.drain_worker($1)";
pub const UNDRAIN: &str = "select sluice.undrain_worker($1)";
pub const ADOPT: &str = "select concat_ws(' ', track_id, attempt) from sluice.adopt($1, $2, $3)";
pub const REGISTER: &str = "
    select sluice.register_worker(p_pool => $1, p_stands_for_pool => $2, p_worker => $3)::text";
pub const REAP: &str = "select concat_ws(' ', track_id, outcome) from sluice.reap()";
pub const PROMOTE: &str = "select sluice.promote()::text";
pub const RETAIN: &str = "select what || ' ' || rows from sluice.retain() where what in ('keys', 'workers')";

/// A back-off lasts longer than a case, so that only a passing of time ends it; it must be one to begin with.
pub const STRETCH_BACK_OFF: &str = "
    update sluice.tasks t
       set available_at = case when t.available_at - e.failed_at between interval '1 s' * least(2 ^ (t.failures - 1), 60)
                                                                   and interval '1.25 s' * least(2 ^ (t.failures - 1), 60)
                               then now() + interval '1 day' end
      from (select track_id, max(at) as failed_at from sluice.task_events where kind = 'retry' group by track_id) e
     where t.track_id = any ($1) and e.track_id = t.track_id";
