//! What late attempts left of deleted documents goes; what resists is kept in view until it gives way.

use sluice::store::ingest::removal::{Swept, sweep};

use crate::bed::Bed;

const LEFT: &str =
    "insert into ingest.artifacts (document_id, kind, artifact_key, tenant, workspace, model, extraction, created_at)
    select gen_random_uuid(), 'extraction', sha256(n::text::bytea), 'acme', '', 'm', '{}', now() - interval '1 hour'
      from generate_series(1, 3) n";

#[tokio::test]
async fn leftovers_of_deleted_documents_are_swept() {
    let bed = Bed::new().await;
    bed.arrange(LEFT).await;
    // Of an attempt that may still run.
    bed.arrange(&LEFT.replace("interval '1 hour'", "interval '1 minute'")).await;

    assert_eq!(sweep(&bed.db.worker(), 2).await.expect("an answer"), Swept { swept: 2, quarantined: 0 });
    assert_eq!(sweep(&bed.db.worker(), 2).await.expect("an answer"), Swept { swept: 1, quarantined: 0 });
    assert_eq!(sweep(&bed.db.worker(), 2).await.expect("an answer"), Swept::default());

    assert_eq!(bed.rows_of("artifacts", "acme").await, 3);
}

#[tokio::test]
async fn leftover_that_resists_is_quarantined_until_it_gives_way() {
    let bed = Bed::new().await;
    bed.arrange(LEFT).await;
    bed.arrange(
        "create function public.resist() returns trigger language plpgsql as
         $$ begin raise exception 'the disk says no'; end $$;
         create trigger resist before delete on ingest.artifacts for each row execute function public.resist()",
    )
    .await;
    let waiting =
        "select count(*) from ingest.compensation_quarantine where resolved_at is null and reason = 'the disk says no'";

    assert_eq!(sweep(&bed.db.worker(), 10).await.expect("an answer"), Swept { swept: 0, quarantined: 3 });
    assert_eq!(bed.number(waiting).await, 3);
    // Not again before its time.
    assert_eq!(sweep(&bed.db.worker(), 10).await.expect("an answer"), Swept::default());

    bed.arrange("drop function public.resist() cascade; update ingest.compensation_quarantine set created_at = now() - interval '2 hours'")
        .await;
    assert_eq!(sweep(&bed.db.worker(), 10).await.expect("an answer"), Swept { swept: 3, quarantined: 0 });
    assert_eq!(bed.number(waiting).await, 0);
}
