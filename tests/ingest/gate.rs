//! A gate inside the database: what a worker writes waits there, for as long as the test wants.

use sqlx::{Connection, Executor, PgConnection};

use crate::bed::Bed;

const KEY: i64 = 7_777;

/// Closed until it is opened or dropped.
pub struct Gate {
    holder: PgConnection,
}

impl Gate {
    /// Rows of this table for which the condition (of `new`) holds cannot be written.
    pub async fn close(bed: &Bed, table: &str, condition: &str) -> Self {
        bed.arrange(&format!(
            "create function public.gate() returns trigger language plpgsql as $$
             begin
               if {condition} then
                 set local lock_timeout = 0;
                 perform pg_advisory_xact_lock_shared({KEY});
               end if;
               return new;
             end $$;
             create trigger gate before insert on ingest.{table} for each row execute function public.gate()"
        ))
        .await;
        let mut holder = PgConnection::connect(&bed.db.admin_url()).await.expect("a connection");
        let lock = sqlx::query("select pg_advisory_lock($1)").bind(KEY);
        holder.execute(lock).await.expect("the lock");
        Self { holder }
    }

    pub async fn until_reached(&self, bed: &Bed) {
        let sql = format!(
            "select count(*) from pg_locks
              where locktype = 'advisory' and objid = {KEY} and not granted
                and database = (select oid from pg_database where datname = current_database())"
        );
        bed.until("a worker is at the gate", async || bed.number(&sql).await > 0).await;
    }

    /// The session that waits there ends, and what it wrote with it.
    pub async fn end_who_waits(&self, bed: &Bed) {
        let sql = format!(
            "select count(pg_terminate_backend(pid)) from pg_locks
              where locktype = 'advisory' and objid = {KEY} and not granted
                and database = (select oid from pg_database where datname = current_database())"
        );
        bed.number(&sql).await;
    }

    pub async fn open(self, bed: &Bed) {
        self.holder.close().await.expect("the connection closes");
        bed.arrange("drop function public.gate() cascade").await;
    }
}
