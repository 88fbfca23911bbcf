//! `sluice migrate`: five at once, in one database and in five, through a pooler, and what it refuses.

use futures::future::join_all;
use private_postgres::{Options, Server};
use sluice::store::migrate::{MIGRATIONS, MigrateError, Migration, migrate, missing};
use sluice::store::{Database, PoolSettings, Role};
use sqlx::Row;

use crate::common::postgres::TestDb;

const AT_ONCE: usize = 5;

const FIRST: Migration = Migration { version: 1, name: "0001_first", sql: "create table sluice.first (n int)" };
const SECOND: Migration = Migration {
    version: 2,
    name: "0002_second",
    // Long enough for the others to meet it.
    sql: "create table sluice.second (n int); select pg_sleep(0.3)",
};

fn migrator(url: &str) -> Database {
    Database::new(url.parse().expect("a URL"), Role::Migrator, PoolSettings::default())
}

async fn recorded(database: &Database) -> Vec<String> {
    let rows = database.fetch_all(sqlx::query("select name from sluice.migrations order by version")).await;
    rows.expect("the records").iter().map(|row| row.get(0)).collect()
}

async fn assert_five_at_once_apply_each_once(db: &TestDb) {
    let runs = join_all((0..AT_ONCE).map(|_| {
        let database = migrator(&db.url(Role::Migrator));
        async move { migrate(&database, &[FIRST, SECOND]).await }
    }))
    .await;

    let mut applied: Vec<_> = runs.into_iter().flat_map(|run| run.expect("every run ends well")).collect();
    applied.sort_unstable();
    assert_eq!(applied, ["0001_first", "0002_second"]);
}

#[tokio::test]
async fn five_at_once_apply_each_migration_once() {
    assert_five_at_once_apply_each_once(&TestDb::unmigrated().await).await;
}

#[tokio::test]
async fn five_at_once_through_pgbouncer_apply_each_migration_once() {
    let name = "five_at_once_through_pgbouncer_apply_each_migration_once";
    let Some(db) = TestDb::unmigrated_through_pgbouncer(name).await else { return };

    assert_five_at_once_apply_each_once(&db).await;
}

#[tokio::test]
async fn five_databases_of_a_new_server_are_migrated_at_once() {
    // Roles are the server's: nothing else may have made them.
    let server = Server::start(Options::fast()).expect("a server");
    let names: Vec<String> = (0..AT_ONCE).map(|number| format!("database_{number}")).collect();
    for name in &names {
        server.create_database(name).expect("a database");
    }

    let runs = join_all(names.iter().map(|name| {
        let database = migrator(&server.url(name));
        async move { migrate(&database, MIGRATIONS).await }
    }))
    .await;

    for run in runs {
        assert_eq!(run.expect("every run ends well").len(), MIGRATIONS.len());
    }
}

#[tokio::test]
async fn roles_that_five_databases_change_at_once_are_changed() {
    const ROLES: Migration = Migration {
        version: 1,
        name: "0001_roles",
        sql: "do $$ begin
                if not exists (select from pg_roles where rolname = 'shared_role') then create role shared_role; end if;
                for i in 1..50 loop
                  execute format('alter role shared_role set statement_timeout = %s', i);
                  alter role shared_role connection limit 5;
                end loop;
                grant shared_role to current_user;
              end $$",
    };
    let server = Server::start(Options::fast()).expect("a server");
    let names: Vec<String> = (0..AT_ONCE).map(|number| format!("database_{number}")).collect();
    for name in &names {
        server.create_database(name).expect("a database");
    }

    let runs = join_all(names.iter().map(|name| {
        let database = migrator(&server.url(name));
        async move { migrate(&database, &[ROLES]).await }
    }))
    .await;

    for run in runs {
        assert_eq!(run.expect("every run ends well"), ["0001_roles"]);
    }
}

#[tokio::test]
async fn second_run_applies_nothing() {
    let db = TestDb::unmigrated().await;
    let database = migrator(&db.url(Role::Migrator));

    migrate(&database, MIGRATIONS).await.expect("the first run");

    assert!(migrate(&database, MIGRATIONS).await.expect("the second run").is_empty());
    assert!(missing(&database, MIGRATIONS).await.expect("the state").is_empty());
}

#[tokio::test]
async fn database_that_is_newer_is_refused_with_one_sentence() {
    let db = TestDb::unmigrated().await;
    let database = migrator(&db.url(Role::Migrator));
    migrate(&database, &[FIRST, SECOND]).await.expect("the newer program");

    let error = migrate(&database, &[FIRST]).await.expect_err("the older program");

    assert_eq!(
        error.to_string(),
        "the database is at migration 2, this program knows them up to 1: run a newer version of sluice"
    );
    assert!(missing(&database, &[FIRST]).await.is_err());
}

#[tokio::test]
async fn migration_that_changed_is_refused() {
    let db = TestDb::unmigrated().await;
    let database = migrator(&db.url(Role::Migrator));
    migrate(&database, &[FIRST]).await.expect("the first state");

    let changed = Migration { sql: "create table sluice.first (n bigint)", ..FIRST };
    let error = migrate(&database, &[changed, SECOND]).await.expect_err("another text");

    assert!(matches!(error, MigrateError::Changed { name: "0001_first" }), "{error}");
    assert_eq!(recorded(&database).await, ["0001_first"]);
}

#[tokio::test]
async fn migration_that_was_left_out_is_refused() {
    let db = TestDb::unmigrated().await;
    let database = migrator(&db.url(Role::Migrator));
    migrate(&database, &[FIRST, SECOND]).await.expect("both");
    sqlx::query("delete from sluice.migrations where version = 1").execute(db.admin()).await.expect("a gap");

    let error = migrate(&database, &[FIRST, SECOND]).await.expect_err("a gap");

    assert!(matches!(error, MigrateError::LeftOut { name: "0001_first" }), "{error}");
}

#[tokio::test]
async fn failed_migration_leaves_nothing_and_keeps_those_before() {
    let db = TestDb::unmigrated().await;
    let database = migrator(&db.url(Role::Migrator));
    let broken = Migration { version: 2, name: "0002_broken", sql: "create table sluice.half (n int); select 1 / 0" };

    let error = migrate(&database, &[FIRST, broken]).await.expect_err("a division");

    assert!(matches!(error, MigrateError::Failed { name: "0002_broken", .. }), "{error}");
    assert_eq!(recorded(&database).await, ["0001_first"]);
    assert_eq!(missing(&database, &[FIRST, broken]).await.expect("the state"), ["0002_broken"]);
    let half = sqlx::query("select to_regclass('sluice.half') is null").fetch_one(db.admin()).await.expect("a look");
    assert!(half.get::<bool, _>(0));
}

#[tokio::test]
async fn busy_table_is_asked_for_again() {
    let db = TestDb::unmigrated().await;
    let database = migrator(&db.url(Role::Migrator));
    migrate(&database, &[FIRST]).await.expect("a table");
    let mut holder = db.admin().begin().await.expect("a transaction");
    sqlx::query("lock table sluice.first in access share mode").execute(&mut *holder).await.expect("a lock");
    let alter = Migration {
        version: 2,
        name: "0002_alter",
        sql: "set local lock_timeout = '50ms'; alter table sluice.first add m int",
    };

    let migrating = tokio::spawn(async move { migrate(&database, &[FIRST, alter]).await });
    // It has met the lock when a backend has waited for it.
    let waiting = "select exists (select from pg_locks where not granted and relation = 'sluice.first'::regclass)";
    while !sqlx::query(waiting).fetch_one(db.admin()).await.expect("the locks").get::<bool, _>(0) {
        assert!(!migrating.is_finished());
    }
    holder.rollback().await.expect("the lock is free");

    assert_eq!(migrating.await.expect("no panic").expect("it ends well"), ["0002_alter"]);
}

#[tokio::test]
async fn owner_without_superuser_rights_can_migrate() {
    // A server without our roles: whoever makes them may act in them.
    let server = Server::start(Options::fast()).expect("a server");
    server.psql("postgres", "create role owner login createrole password 'only-for-tests'").expect("an owner");
    server.psql("postgres", "create database owned owner owner").expect("a database");
    let database = migrator(&server.url_as("owner", "only-for-tests", "owned"));

    let applied = migrate(&database, MIGRATIONS).await.expect("no superuser is needed");

    assert_eq!(applied.len(), MIGRATIONS.len());
}
