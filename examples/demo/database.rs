//! The Postgres that the demo runs on: a private server, or that of `DATABASE_URL`; a database of its own in either.

use std::collections::BTreeMap;
use std::process::id;

use anyhow::{Context, Result, bail};
use private_postgres::{Options, Server};

use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection};
use tokio::net::{TcpListener, TcpStream};
use url::Url;
use uuid::Uuid;

use crate::documents::TENANTS;
use crate::summary::Ingested;
use crate::tools::apart;

const GROUPS: [&str; 4] = ["sluice_owner", "sluice_operator", "sluice_worker", "sluice_reader"];
/// Each login of the demo, and the role that it has.
const LOGINS: [(&str, &str); 3] =
    [("migrations", "sluice_owner"), ("operator", "sluice_operator"), ("worker", "sluice_worker")];

pub struct Database {
    /// Ends with this value.
    _server: Option<Server>,
    admin: PgPool,
    /// Of an administrator, in the demo's database.
    pub url: Url,
    pool: PgPool,
    name: String,
    made: Vec<String>,
}

/// What the Secrets hold.
pub struct PodUrls {
    pub migrations: String,
    pub operator: String,
    pub worker: String,
}

impl Database {
    pub async fn start(given: Option<String>) -> Result<Self> {
        let (server, url) = match given {
            Some(url) => (None, url),
            None => {
                let server = apart(|| Ok(Server::start(Options::fast())?)).await?;
                let url = server.url("postgres");
                (Some(server), url)
            }
        };
        let mut url = Url::parse(&url).context("DATABASE_URL is no URL")?;
        if url.host_str().is_none_or(str::is_empty) {
            bail!(
                "DATABASE_URL names no host, and pods reach no socket of this machine: write postgres://user:password@host/database"
            );
        }
        // A pool would try again for half a minute, and then not say why.
        let first =
            PgConnection::connect(url.as_str()).await.context("the Postgres of DATABASE_URL cannot be reached")?;
        first.close().await?;
        let admin = PgPoolOptions::new().max_connections(1).connect(url.as_str()).await?;
        let name = if server.is_some() { "sluice".to_owned() } else { format!("sluice_demo_{}", id()) };
        url.set_path(&name);
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy(url.as_str())?;
        Ok(Self { _server: server, admin, url, pool, name, made: Vec::new() })
    }

    /// The database and three logins with no more rights than each needs. Pods find the server at `host`, if that is another
    /// address than ours.
    pub async fn prepare(&mut self, host: Option<(String, u16)>) -> Result<PodUrls> {
        for role in GROUPS {
            let there =
                sqlx::query("select from pg_roles where rolname = $1").bind(role).fetch_optional(&self.admin).await?;
            if there.is_none() {
                self.ddl(format!("create role {role} nologin")).await?;
                self.made.push(role.to_owned());
            }
        }
        let mut urls = Vec::new();
        for (login, group) in LOGINS {
            let role = format!("{}_{login}_login", self.name);
            let password = Uuid::new_v4().simple().to_string();
            self.ddl(format!("create role {role} login password '{password}' in role {group}")).await?;
            self.made.insert(0, role.clone());
            let mut url = self.url.clone();
            if let Some((host, port)) = &host {
                url.set_host(Some(host))?;
                url.set_port(Some(*port)).ok().context("a Postgres URL has a port")?;
            }
            url.set_username(&role).ok().context("a Postgres URL has a user")?;
            url.set_password(Some(&password)).ok().context("a Postgres URL has a password")?;
            urls.push(url.to_string());
        }
        self.ddl(format!("create database {0} owner {0}_migrations_login", self.name)).await?;
        let [migrations, operator, worker] = urls.try_into().ok().context("three logins")?;
        Ok(PodUrls { migrations, operator, worker })
    }

    /// Lets pods reach a server that may listen on this machine alone.
    pub async fn bridge(&self) -> Result<u16> {
        let to = (self.url.host_str().unwrap_or_default().to_owned(), self.url.port().unwrap_or(5432));
        let listener = TcpListener::bind(("0.0.0.0", 0)).await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move {
            while let Ok((mut inside, _)) = listener.accept().await {
                let to = to.clone();
                tokio::spawn(async move {
                    if let Ok(mut outside) = TcpStream::connect(to).await {
                        let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
                    }
                });
            }
        });
        Ok(port)
    }

    /// What each tenant runs now, the stopping ones included.
    pub async fn running(&self) -> Result<BTreeMap<String, u64>> {
        let query = "select tenant, running + stopping from sluice.lane_counts($1) where class = 'ingest'";
        let rows: Vec<(String, i64)> = sqlx::query_as(query).bind(&TENANTS[..]).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|(tenant, running)| (tenant, running.unsigned_abs())).collect())
    }

    pub async fn ingested(&self) -> Result<Vec<Ingested>> {
        type Row = (String, Option<String>, Option<i32>, i32, i64, i64);
        let query = "
            select v.tenant, v.title, d.pages, v.chunks,
                   (select count(distinct e.entity_id) from ingest.provenance p
                      join ingest.entities e on e.entity_id = p.item_id where p.version_id = v.version_id),
                   (select count(*) from ingest.embeddings e where e.version_id = v.version_id)
              from ingest.document_versions v left join sluice.documents d using (document_id)
             where v.tenant = any ($1) order by v.tenant, v.title";
        let rows: Vec<Row> = sqlx::query_as(query).bind(&TENANTS[..]).fetch_all(&self.pool).await?;
        let ingested = rows.into_iter().map(|(tenant, title, pages, chunks, entities, vectors)| Ingested {
            tenant,
            title: title.unwrap_or_default(),
            pages: pages.map(i64::from),
            chunks: chunks.into(),
            entities,
            vectors,
        });
        Ok(ingested.collect())
    }

    /// Only of a server that is another's; a private one goes as a whole.
    pub async fn remove(&self) -> Result<()> {
        if self._server.is_some() {
            return Ok(());
        }
        self.pool.close().await;
        self.ddl(format!("drop database if exists {} with (force)", self.name)).await?;
        for role in &self.made {
            self.ddl(format!("drop role {role}")).await?;
        }
        Ok(())
    }

    /// Names and passwords in it are the demo's own.
    async fn ddl(&self, statement: String) -> Result<()> {
        let what = statement.split(" password").next().unwrap_or_default().to_owned();
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&self.admin)
            .await
            .with_context(|| format!("`{what}` failed"))?;
        Ok(())
    }
}
