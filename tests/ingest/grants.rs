//! Who may do what in schema `ingest`.

use crate::bed::Bed;

#[tokio::test]
async fn workers_add_readers_read_and_nobody_else_may_anything() {
    let bed = Bed::new().await;
    let granted = bed
        .texts(
            "select r.rolname || ' ' || c.relname || ': ' || string_agg(v.privilege, ', ' order by v.privilege)
               from pg_class c cross join pg_roles r
              cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) v (privilege)
              where c.relnamespace = 'ingest'::regnamespace and c.relkind = 'r' and r.rolname like 'sluice\\_test\\_%'
                and has_table_privilege(r.oid, c.oid, v.privilege)
              group by r.rolname, c.relname",
        )
        .await;
    let mut expected: Vec<String> = Vec::new();
    let tables =
        ["artifacts", "chunks", "contents", "document_versions", "embeddings", "entities", "provenance", "relations"];
    for table in tables {
        expected.push(format!("sluice_test_worker {table}: insert, select"));
        expected.push(format!("sluice_test_reader {table}: select"));
    }
    for role in ["worker", "operator", "reader"] {
        expected.push(format!("sluice_test_{role} compensation_quarantine: select"));
    }
    assert_eq!(granted, expected.into_iter().collect());
}

#[tokio::test]
async fn functions_belong_to_the_owner_and_pin_their_path() {
    let bed = Bed::new().await;
    let wrong = bed
        .texts(
            "select p.proname::text from pg_proc p
              where p.pronamespace = 'ingest'::regnamespace
                and (p.proowner <> 'sluice_owner'::regrole or not p.prosecdef
                     or not coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog']
                     or has_function_privilege('sluice_test_reader', p.oid, 'execute')
                     or has_function_privilege('sluice_test_operator', p.oid, 'execute')
                     or not has_function_privilege('sluice_test_worker', p.oid, 'execute'))",
        )
        .await;
    assert!(wrong.is_empty(), "{wrong:?}");
}
