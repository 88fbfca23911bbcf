//! Who may call what, and that nobody may write a table.

use sqlx::Row;

use crate::common::postgres::TestDb;

/// One line for each function of the protocol: `worker`, `operator`, `reader`.
const GRANTS: [(&str, &[&str]); 53] = [
    ("about", &["worker", "operator", "reader"]),
    ("adopt", &["worker"]),
    ("cancel", &["operator"]),
    ("cancel_active", &["operator"]),
    ("cancel_linked", &["operator"]),
    ("claim", &["worker", "operator"]),
    ("complete", &["worker"]),
    ("complete_many", &["worker"]),
    ("complete_with_next", &["worker"]),
    ("document_owner", &["operator"]),
    ("drain_worker", &["worker", "operator"]),
    ("enqueue", &["worker", "operator"]),
    ("enqueue_many", &["worker", "operator"]),
    ("fail", &["worker"]),
    ("flush", &["worker", "operator"]),
    ("follow_ons", &["operator"]),
    ("forget_resources", &["operator"]),
    ("heartbeat", &["worker", "operator"]),
    ("hold_all", &["operator"]),
    ("hold_lane", &["operator"]),
    ("lane_counts", &["worker", "operator", "reader"]),
    ("lane_sources", &["worker", "operator", "reader"]),
    ("leave_pool", &["operator"]),
    ("manage_pool", &["operator"]),
    ("mirror_ack", &["operator"]),
    ("mirror_changes", &["operator"]),
    ("mirror_task", &["operator"]),
    ("pool_demand", &["worker", "operator", "reader"]),
    ("pool_managers", &["operator"]),
    ("pool_settings", &["worker", "operator", "reader"]),
    ("pool_workers", &["worker", "operator", "reader"]),
    ("promote", &["worker", "operator"]),
    ("reap", &["worker", "operator"]),
    ("register_worker", &["worker", "operator"]),
    ("release", &["worker", "operator"]),
    ("report", &["worker"]),
    ("resources", &["operator"]),
    ("resources_after", &["operator"]),
    ("resume", &["operator"]),
    ("retain", &["worker", "operator"]),
    ("retry", &["operator"]),
    ("set_lane", &["operator"]),
    ("set_pool", &["operator"]),
    ("set_priority", &["operator"]),
    ("set_retains", &["operator"]),
    ("settle", &["worker", "operator"]),
    ("stopped", &["worker"]),
    ("suspend", &["operator"]),
    ("undrain_worker", &["operator"]),
    ("unmirrored", &["operator"]),
    ("wake", &["worker", "operator"]),
    ("watch", &["worker"]),
    ("task_status", &["worker", "operator", "reader"]),
];

#[tokio::test]
async fn each_role_may_call_exactly_what_it_needs() {
    let db = TestDb::new().await;
    for role in ["worker", "operator", "reader"] {
        let rows = sqlx::query(
            "select p.proname as name from pg_proc p
              where p.pronamespace = 'sluice'::regnamespace and has_function_privilege($1, p.oid, 'execute')
             union
             select 'task_status' where has_table_privilege($1, 'sluice.task_status', 'select')
              order by 1",
        )
        .bind(format!("sluice_test_{role}"))
        .fetch_all(db.admin())
        .await
        .expect("the grants");
        let granted: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let mut expected: Vec<_> =
            GRANTS.iter().filter(|(_, roles)| roles.contains(&role)).map(|(name, _)| *name).collect();
        expected.sort_unstable();
        assert_eq!(granted, expected, "{role}");
    }
}

#[tokio::test]
async fn no_login_may_write_a_table_and_only_the_reader_may_read_them() {
    let db = TestDb::new().await;
    let rows = sqlx::query(
        "select r.rolname || ' may ' || v.privilege || ' ' || c.relname
           from pg_class c
          cross join pg_roles r
          cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) v (privilege)
          where c.relnamespace = 'sluice'::regnamespace and c.relkind in ('r', 'p', 'v')
            and r.rolname in ('sluice_test_worker', 'sluice_test_operator', 'sluice_test_reader')
            and not (v.privilege = 'select' and (c.relname = 'task_status' or r.rolname = 'sluice_test_reader'))
            and has_table_privilege(r.oid, c.oid, v.privilege)",
    )
    .fetch_all(db.admin())
    .await
    .expect("the grants");
    let wrong: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(wrong, [""; 0]);

    let sequences: i64 = sqlx::query(
        "select count(*) from pg_class c cross join pg_roles r
          where c.relnamespace = 'sluice'::regnamespace and c.relkind = 'S' and r.rolname like 'sluice\\_test\\_%'
            and has_sequence_privilege(r.oid, c.oid, 'usage, update')",
    )
    .fetch_one(db.admin())
    .await
    .expect("the grants")
    .get(0);
    assert_eq!(sequences, 0);
}

#[tokio::test]
async fn public_may_nothing() {
    let db = TestDb::new().await;
    let row = sqlx::query(
        "select (select count(*) from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                  where p.pronamespace = 'sluice'::regnamespace and a.grantee = 0),
                (select count(*) from pg_class c, aclexplode(c.relacl) a
                  where c.relnamespace = 'sluice'::regnamespace and a.grantee = 0),
                (select count(*) from pg_namespace n, aclexplode(n.nspacl) a where n.nspname = 'sluice' and a.grantee = 0)",
    )
    .fetch_one(db.admin())
    .await
    .expect("the grants");
    assert_eq!([row.get::<i64, _>(0), row.get(1), row.get(2)], [0, 0, 0]);
}

#[tokio::test]
async fn every_function_belongs_to_the_owner_and_those_that_are_called_pin_their_path() {
    let db = TestDb::new().await;
    let rows = sqlx::query(
        "select p.proname || ' is ' || p.proowner::regrole || ', ' || coalesce(p.proconfig::text, 'unpinned')
           from pg_proc p
          where p.pronamespace = 'sluice'::regnamespace
            and (p.proowner <> 'sluice_owner'::regrole or p.prosecdef = (p.proname like '\\_%')
                 or p.prosecdef and not coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog'])",
    )
    .fetch_all(db.admin())
    .await
    .expect("the functions");
    let wrong: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(wrong, [""; 0]);
    let logins: i64 = sqlx::query("select count(*) from pg_roles where rolname = 'sluice_owner' and rolcanlogin")
        .fetch_one(db.admin())
        .await
        .expect("the role")
        .get(0);
    assert_eq!(logins, 0);
}
