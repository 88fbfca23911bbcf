//! Claim and complete as fast as it goes: ours beside the sketch, beside itself without caps, and beside the machine.

use anyhow::{Context, ensure};

use crate::common::bed::Bed;
use crate::common::load::{self, NO_CAP, Shape};
use crate::common::report::{Report, median};
use crate::pgbench::{self, Length, Load};
use crate::scale::Scale;

/// A shape of the comparison with the sketch.
#[derive(Clone, Copy)]
struct Cell {
    name: &'static str,
    lanes: i32,
    cap: i32,
    want: u32,
    clients: u32,
    handler_ms: u32,
    /// The same for all who are compared. In the first shape a turn is a lane's whole cap: ours visits at most 256
    /// lanes a call and takes two of each then, so that with a quantum of 1 the sketch would pay for twice the visits.
    quantum: u32,
    /// More than a second can drain.
    rows_per_second: i64,
}

/// A quick look keeps the ten thousand lanes: with a tenth of them the four clients would hold every slot there is.
const MANY: Cell = Cell {
    name: "10,000 × 2",
    lanes: 10_000,
    cap: 2,
    want: 512,
    clients: 4,
    handler_ms: 0,
    quantum: 2,
    rows_per_second: 100_000,
};
const SOME: Cell = Cell {
    name: "20 × 8",
    lanes: 20,
    cap: 8,
    want: 16,
    clients: 12,
    handler_ms: 5,
    quantum: 1,
    rows_per_second: 25_000,
};
const ONE: Cell = Cell {
    name: "1 × 200",
    lanes: 1,
    cap: 200,
    want: 32,
    clients: 8,
    handler_ms: 5,
    quantum: 1,
    rows_per_second: 40_000,
};
const HOT: Cell = Cell { want: 1, clients: 48, rows_per_second: 5_000, ..ONE };

#[derive(Clone, Copy, PartialEq)]
enum Contestant {
    Ours,
    OursWithoutCaps,
    Row,
    Shared,
}

struct Drained {
    tasks_per_s: f64,
    /// Claims that found nothing ÷ claims.
    empty: f64,
}

pub async fn sketch_ratio(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let mut worst = f64::INFINITY;
    for cell in [MANY, SOME, ONE] {
        let (mut ours, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..scale.repeats {
            let we = drain(bed, scale, cell, Contestant::Ours).await?.tasks_per_s;
            let row = drain(bed, scale, cell, Contestant::Row).await?.tasks_per_s;
            let shared = drain(bed, scale, cell, Contestant::Shared).await?.tasks_per_s;
            report.progress(format!("{}: ours {we:.0}, row {row:.0}, shared {shared:.0} tasks/s", cell.name));
            ours.push(we);
            ratios.push(we / row.max(shared));
        }
        let ratio = median(&ratios);
        report.note(format!("{} ÷ the better sketch: {ratio:.2} ({:.0} tasks/s)", cell.name, median(&ours)));
        worst = worst.min(ratio);
    }
    report.set("drain_ratio_sketch", worst);
    Ok(())
}

pub async fn hot_lane(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let (mut empty, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..scale.repeats {
        let we = drain(bed, scale, HOT, Contestant::Ours).await?;
        let shared = drain(bed, scale, HOT, Contestant::Shared).await?;
        report.progress(format!(
            "hot lane: ours {:.0}, shared {:.0} tasks/s, empty {:.4}",
            we.tasks_per_s, shared.tasks_per_s, we.empty
        ));
        empty.push(we.empty);
        ratios.push(we.tasks_per_s / shared.tasks_per_s);
    }
    report.set("hot_lane_empty", median(&empty));
    report.set("hot_lane_ratio", median(&ratios));
    Ok(())
}

/// The first shape between two bounds: the same without caps, and the floor of the machine, which is the two changes that
/// any queue makes, with nothing to decide.
pub async fn bounds(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let (mut of_caps, mut of_floor) = (Vec::new(), Vec::new());
    for _ in 0..scale.repeats {
        let we = drain(bed, scale, MANY, Contestant::Ours).await?.tasks_per_s;
        let off = drain(bed, scale, MANY, Contestant::OursWithoutCaps).await?.tasks_per_s;
        let bare = floor(bed, scale, MANY).await?;
        report.progress(format!("caps on {we:.0}, off {off:.0} tasks/s; floor {bare:.0} pairs/s"));
        of_caps.push(we / off);
        of_floor.push(we / bare);
    }
    report.set("caps_on_ratio", median(&of_caps));
    report.set("drain_ratio_floor", median(&of_floor));
    Ok(())
}

async fn drain(bed: &Bed, scale: &Scale, cell: Cell, contestant: Contestant) -> anyhow::Result<Drained> {
    let database = bed.ours().await?;
    let cap = if contestant == Contestant::OursWithoutCaps { NO_CAP } else { cell.cap };
    let rows = cell.rows_per_second * i64::from(scale.cell_secs);
    if matches!(contestant, Contestant::Row | Contestant::Shared) {
        load::lanes(&database, 1, cell.lanes, cap).await?;
        database.execute(include_str!("sketch.sql")).await?;
        database.execute("insert into sketch.lanes table sluice.lane_turns").await?;
        load::tasks_into(&database, "sketch.tasks", 1, cell.lanes, rows).await?;
    } else {
        load::shape(&database, Shape { lanes: cell.lanes, cap, rows }).await?;
    }
    let (script, done) = match contestant {
        Contestant::Ours | Contestant::OursWithoutCaps => (
            pgbench::ours(cell.want, cell.quantum, cell.handler_ms),
            "select count(*) from sluice.tasks_archive where state = 'completed'",
        ),
        Contestant::Row => (
            pgbench::sketch("row", cell.want, cell.quantum, cell.handler_ms),
            "select count(*) from sketch.tasks where state = 'completed'",
        ),
        Contestant::Shared => (
            pgbench::sketch("shared", cell.want, cell.quantum, cell.handler_ms),
            "select count(*) from sketch.tasks where state = 'completed'",
        ),
    };
    database.settle().await?;
    let outcome = Load { script: &script, clients: cell.clients, length: Length::Seconds(scale.cell_secs) }
        .run(bed, &database)?;
    let tasks = database.number(done).await?;
    ensure!(tasks < rows, "{}: all {rows} tasks were done before the time was over", cell.name);
    ensure!(database.number(OVER_CAP).await? == 0, "{}: a lane is over its cap", cell.name);
    bed.drop(database).await?;
    let claims = outcome.transactions as f64;
    let got = if cell.want == 1 { tasks as f64 } else { claims };
    Ok(Drained { tasks_per_s: tasks as f64 / outcome.seconds, empty: (claims - got) / claims })
}

const OVER_CAP: &str = "select count(*) from (select from sluice.tasks t join sluice.lane_turns l using (lane_id)
                          where t.leased group by l.lane_id, l.cap having count(*) > l.cap) s";

async fn floor(bed: &Bed, scale: &Scale, cell: Cell) -> anyhow::Result<f64> {
    let database = bed.ours().await?;
    // The floor goes through twice what a queue does.
    let rows = 2 * cell.rows_per_second * i64::from(scale.cell_secs);
    load::shape(&database, Shape { lanes: cell.lanes, cap: cell.cap, rows }).await?;
    let want = cell.want;
    database
        .execute(format!(
            "create schema bench;
             create table bench.batches (n bigint primary key, ids uuid[] not null);
             insert into bench.batches
             select g, array_agg(track_id) from (select track_id, (row_number() over (order by id) - 1) / {want} as g from sluice.tasks) s
              group by g;"
        ))
        .await?;
    database.settle().await?;
    // Each client takes every nth batch. The second update leaves the row outside every index but the key.
    let script = format!(
        "\\set round :round + 1\n\\set batch :round * {clients} + :client_id\n\
         update sluice.tasks set state = 'processing', leased = true, attempt = attempt + 1, worker_id = md5('floor')::uuid, \
         claim_sequence = 1, started_at = now(), lease_until = now() + interval '120 s', deadline = now() + interval '2 h', \
         progressed = false where track_id = any ((select ids from bench.batches where n = :batch)::uuid[]);\n\
         update sluice.tasks set state = 'pending', ready = false, suspended = true, leased = false, lease_until = null, \
         finished_at = now() where track_id = any ((select ids from bench.batches where n = :batch)::uuid[]);\n",
        clients = cell.clients,
    );
    let outcome = Load { script: &script, clients: cell.clients, length: Length::Seconds(scale.cell_secs) }
        .run(bed, &database)?;
    let done = database.number("select count(*) from sluice.tasks where suspended").await?;
    ensure!(done < rows - i64::from(want * cell.clients), "the floor reached the end of its rows");
    bed.drop(database).await.context("floor")?;
    Ok(done as f64 / outcome.seconds)
}
