//! How proptest makes cases up: what happens often, what seldom.

use proptest::option::weighted;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use sluice::domain::lane::{Class, Policy};
use sluice::domain::task::TaskType;
use uuid::Uuid;

use super::call::{
    Among, CONNECTIONS, Call, Item, LaneChange, POOLS, Passing, Pick, PoolChange, Step, TENANTS, WORKERS,
};
use super::ends::{PERMANENT, TIMEOUT, TRANSIENT};

/// A whole case.
pub fn case() -> impl Strategy<Value = Vec<Step>> {
    // Work first, so that short cases have something to do.
    let first =
        proptest::collection::vec(item(), 1..8).prop_map(|items| Step { connection: 0, call: Call::Enqueue(items) });
    let step = (0..CONNECTIONS, call()).prop_map(|(connection, call)| Step { connection, call });
    (first, proptest::collection::vec(step, 1..60)).prop_map(|(first, mut steps)| {
        steps.insert(0, first);
        steps
    })
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        5 => transaction(),
        14 => intake(),
        22 => claim(),
        34 => worker_call(),
        24 => control_call(),
        12 => platform_call(),
        10 => upkeep_call(),
        12 => passing().prop_map(Call::TimePasses),
    ]
}

fn transaction() -> impl Strategy<Value = Call> {
    prop_oneof![3 => Just(Call::Begin), 2 => Just(Call::Commit), 1 => Just(Call::Rollback)]
}

fn intake() -> impl Strategy<Value = Call> {
    prop_oneof![
        2 => proptest::collection::vec(item(), 0..6).prop_map(Call::Enqueue),
        1 => item().prop_map(Call::EnqueueOne),
    ]
}

fn claim() -> impl Strategy<Value = Call> {
    (0..WORKERS, 1..7_i32, 1..4_i32).prop_map(|(worker, want, quantum)| Call::Claim { worker, want, quantum })
}

fn worker_call() -> impl Strategy<Value = Call> {
    let many = || proptest::collection::vec(running(), 0..4);
    let stage = select(vec![None, Some("chunking"), Some("embedding")]);
    let class = prop_oneof![2 => Just(TRANSIENT), 2 => Just(TIMEOUT), 1 => Just(PERMANENT)];
    prop_oneof![
        4 => (0..WORKERS, any::<u8>(), any::<bool>()).prop_map(|(worker, forgets, one_old_attempt)| Call::Heartbeat {
            worker, forgets, one_old_attempt
        }),
        2 => (0..WORKERS, pick(Among::All)).prop_map(|(worker, also)| Call::Watch { worker, also }),
        3 => (running(), stage).prop_map(|(task, stage)| Call::Report { task, stage }),
        4 => running().prop_map(Call::Complete),
        4 => (running(), item()).prop_map(|(task, next)| Call::CompleteWithNext { task, next }),
        3 => many().prop_map(Call::CompleteMany),
        5 => (running(), class).prop_map(|(task, class)| Call::Fail { task, class }),
        3 => prop_oneof![3 => pick(Among::Stopping), 1 => running()].prop_map(Call::Stopped),
        4 => (many(), weighted(0.2, Just(()))).prop_map(|(tasks, cool)| Call::Release { tasks, cool_down: cool.is_some() }),
        2 => (0..WORKERS, running()).prop_map(|(worker, task)| Call::Adopt { worker, task }),
    ]
}

fn control_call() -> impl Strategy<Value = Call> {
    let task = || prop_oneof![3 => pick(Among::Pending), 3 => pick(Among::Running), 2 => pick(Among::All)];
    let ended = prop_oneof![5 => pick(Among::Ended), 1 => pick(Among::All)];
    let class = select(vec![None, Some(Class::Ingest), Some(Class::Lifecycle)]);
    prop_oneof![
        5 => (task(), tenant()).prop_map(|(task, tenant)| Call::Cancel { task, tenant }),
        3 => (task(), tenant()).prop_map(|(task, tenant)| Call::CancelLinked { task, tenant }),
        1 => (tenant(), class).prop_map(|(tenant, class)| Call::CancelActive { tenant, class }),
        6 => (ended, tenant()).prop_map(|(task, tenant)| Call::Retry { task, tenant }),
        2 => (pick(Among::Pending), tenant()).prop_map(|(task, tenant)| Call::Suspend { task, tenant }),
        3 => (pick(Among::Pending), tenant()).prop_map(|(task, tenant)| Call::Resume { task, tenant }),
        3 => (pick(Among::Pending), -1..3_i32).prop_map(|(task, priority)| Call::SetPriority { task, priority }),
    ]
}

fn platform_call() -> impl Strategy<Value = Call> {
    let lane = || (0..TENANTS.len(), class());
    let lane_change = (
        weighted(0.3, 0..POOLS.len()),
        weighted(0.6, weighted(0.8, 0..4_i32)),
        weighted(0.3, select(vec![1, 2, 1000])),
        weighted(0.2, policy()),
    )
        .prop_map(|(pool, cap, weight, policy)| LaneChange { pool, cap, weight, policy });
    let pool_change = (weighted(0.5, 0..4_i32), weighted(0.5, weighted(0.5, 1..3_i32)), weighted(0.3, any::<bool>()))
        .prop_map(|(ingest_cap, ingest_clamp, auto_resume)| PoolChange { ingest_cap, ingest_clamp, auto_resume });
    prop_oneof![
        5 => (lane(), lane_change).prop_map(|((tenant, class), change)| Call::SetLane { tenant, class, change }),
        3 => (lane(), policy()).prop_map(|((tenant, class), policy)| Call::HoldLane { tenant, class, policy }),
        1 => (any::<bool>(), weighted(0.5, 0..POOLS.len())).prop_map(|(held, pool)| Call::HoldAll { held, pool }),
        2 => (0..POOLS.len(), pool_change).prop_map(|(pool, change)| Call::SetPool { pool, change }),
        1 => (0..WORKERS).prop_map(Call::Drain),
        2 => (0..WORKERS).prop_map(Call::Undrain),
        1 => (0..WORKERS).prop_map(Call::Register),
    ]
}

fn upkeep_call() -> impl Strategy<Value = Call> {
    prop_oneof![5 => Just(Call::Reap), 5 => Just(Call::Promote), 1 => Just(Call::Retain)]
}

fn passing() -> impl Strategy<Value = Passing> {
    prop_oneof![
        5 => running().prop_map(Passing::LeaseRunsOut),
        2 => running().prop_map(Passing::DeadlinePasses),
        5 => pick(Among::Pending).prop_map(Passing::BecomesDue),
        2 => (0..TENANTS.len(), any::<bool>())
            .prop_map(|(tenant, is_forgotten)| Passing::RestEnds { tenant, is_forgotten }),
        1 => Just(Passing::KeysAge),
        1 => (0..WORKERS).prop_map(Passing::WorkerIsForgotten),
        1 => any::<u8>().prop_map(Passing::ArchiveIsDropped),
    ]
}

fn item() -> impl Strategy<Value = Item> {
    let kinds =
        vec![TaskType::Insert, TaskType::PdfProcessing, TaskType::Upload, TaskType::Reindex, TaskType::Deletion];
    let what = (0..TENANTS.len(), select(kinds), weighted(0.3, Just(())), 0..2_u8);
    let how = (-1..3_i32, weighted(0.15, Just(())), weighted(0.1, Just(())), 1..4_i32);
    let names = (weighted(0.4, 0..3_u8), weighted(0.2, 0..2_u8), weighted(0.2, 0..2_u8), weighted(0.15, 0..2_u8));
    (what, how, names, weighted(0.03, Just(()))).prop_map(|(what, how, names, bad)| Item {
        tenant: what.0,
        task_type: what.1,
        workspace: what.2.is_some(),
        payload: what.3,
        priority: how.0,
        delayed: how.1.is_some(),
        suspended: how.2.is_some(),
        max_attempts: how.3,
        document: names.0.map(|n| Uuid::from_u128(0xd0c0_0000 + u128::from(n))),
        idempotency: names.1,
        exclusive: names.2,
        resource: names.3,
        is_bad: bad.is_some(),
    })
}

fn running() -> impl Strategy<Value = Pick> {
    prop_oneof![12 => pick(Among::Running), 2 => pick(Among::All), 1 => pick(Among::Ended)]
}

fn pick(among: Among) -> impl Strategy<Value = Pick> {
    let among = prop_oneof![30 => Just(among), 1 => Just(Among::Unknown)];
    (among, any::<u8>(), prop_oneof![12 => Just(0), 1 => Just(-1), 1 => Just(1)])
        .prop_map(|(among, nth, attempt)| Pick { among, nth, attempt })
}

fn tenant() -> impl Strategy<Value = Option<usize>> {
    weighted(0.1, 0..TENANTS.len())
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![4 => Just(Class::Ingest), 1 => Just(Class::Lifecycle)]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![3 => Just(Policy::None), 1 => Just(Policy::Hold), 1 => Just(Policy::HoldAndDrain)]
}
