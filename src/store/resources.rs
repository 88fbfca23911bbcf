//! Custom resources and the tasks that they speak for.

use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::enqueue::Resource;
use super::error::StoreError;
use super::reads::some_of;
use super::session::Session;
use super::wire;
use crate::domain::closed_set;
use crate::domain::lane::Class;
use crate::domain::task::{State, TaskType};

/// A resource that has a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownResource {
    pub mirror_id: i64,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub rev: i64,
    pub mirrored_rev: i64,
    pub track_id: Uuid,
    /// Of the tree; the task itself if nothing followed it.
    pub newest_track_id: Uuid,
    /// The task goes on when the resource is gone.
    pub retains: bool,
}

/// Those that have a task, in no order.
pub async fn resources(
    mut session: impl Session,
    cluster: &str,
    uids: &[String],
) -> Result<Vec<KnownResource>, StoreError> {
    let statement = sqlx::query(
        "select mirror_id, namespace, name, uid, rev, mirrored_rev, track_id, newest_track_id, retains
           from sluice.resources($1, $2)",
    )
    .bind(wire::text(cluster))
    .bind(uids.to_vec());
    wire::rows(&session.fetch_all(statement).await?, |row| {
        Ok(KnownResource {
            mirror_id: wire::column(row, "mirror_id")?,
            namespace: wire::column(row, "namespace")?,
            name: wire::column(row, "name")?,
            uid: wire::column(row, "uid")?,
            rev: wire::column(row, "rev")?,
            mirrored_rev: wire::column(row, "mirrored_rev")?,
            track_id: wire::column(row, "track_id")?,
            newest_track_id: wire::column(row, "newest_track_id")?,
            retains: wire::column(row, "retains")?,
        })
    })
}

/// As much of a resource as a search for those that are gone needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedResource {
    pub mirror_id: i64,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub track_id: Uuid,
    pub retains: bool,
}

/// A page of all, those of these namespaces if any are named: at most `limit` with an id above `after`.
pub async fn resources_after(
    mut session: impl Session,
    cluster: &str,
    namespaces: &[String],
    after: i64,
    limit: u32,
) -> Result<Vec<ListedResource>, StoreError> {
    let statement = sqlx::query(
        "select mirror_id, namespace, name, uid, track_id, retains from sluice.resources_after($1, $2, $3, $4)",
    )
    .bind(wire::text(cluster))
    .bind(after)
    .bind(wire::int(limit))
    .bind(some_of(namespaces));
    wire::rows(&session.fetch_all(statement).await?, |row| {
        Ok(ListedResource {
            mirror_id: wire::column(row, "mirror_id")?,
            namespace: wire::column(row, "namespace")?,
            name: wire::column(row, "name")?,
            uid: wire::column(row, "uid")?,
            track_id: wire::column(row, "track_id")?,
            retains: wire::column(row, "retains")?,
        })
    })
}

/// Whether the task is to go on when its resource is gone. Answers whether the resource has a task.
pub async fn set_retains(
    mut session: impl Session,
    cluster: &str,
    uid: &str,
    retains: bool,
) -> Result<bool, StoreError> {
    let statement = sqlx::query("select sluice.set_retains($1, $2, $3) as known")
        .bind(wire::text(cluster))
        .bind(wire::text(uid))
        .bind(retains);
    wire::column(&session.fetch_one(statement).await?, "known")
}

closed_set! {
    pub enum MirrorOutcome("outcome of mirror_task") {
        Mirrored = "mirrored",
        /// It did so before.
        Existing = "existing",
        /// Another resource shows the task.
        Taken = "taken",
        NotFound = "not_found",
    }
}

/// A resource shows a task of the tenant that is there already, and never cancels it by its going.
pub async fn mirror_task(
    mut session: impl Session,
    resource: &Resource,
    track_id: Uuid,
    tenant: &str,
) -> Result<MirrorOutcome, StoreError> {
    let Resource { cluster, namespace, name, uid } = resource;
    let statement = sqlx::query("select sluice.mirror_task($1, $2, $3, $4, $5, $6) as outcome")
        .bind(wire::text(cluster))
        .bind(wire::text(namespace))
        .bind(wire::text(name))
        .bind(wire::text(uid))
        .bind(track_id)
        .bind(wire::text(tenant));
    wire::named(&session.fetch_one(statement).await?, "outcome", MirrorOutcome::parse)
}

/// These are gone, at most 1,000: only their tasks are kept. Answers how many were known.
pub async fn forget_resources(mut session: impl Session, cluster: &str, uids: &[String]) -> Result<u32, StoreError> {
    let statement =
        sqlx::query("select sluice.forget_resources($1, $2) as known").bind(wire::text(cluster)).bind(uids.to_vec());
    wire::small_count(&session.fetch_one(statement).await?, "known")
}

/// An active task that could have a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmirrored {
    /// Of the lane's resource.
    pub lane_uid: String,
    pub tenant: String,
    pub class: Class,
    pub track_id: Uuid,
    pub task_type: TaskType,
    pub workspace: Option<String>,
}

/// Of the lanes of these resources, in turn, as many as their limits leave room for; at most `limit`, and never over 1,000.
pub async fn unmirrored(
    mut session: impl Session,
    cluster: &str,
    managers: &[String],
    limit: u32,
) -> Result<Vec<Unmirrored>, StoreError> {
    let statement =
        sqlx::query("select lane_uid, tenant, class, track_id, type, workspace from sluice.unmirrored($1, $2, $3)")
            .bind(wire::text(cluster))
            .bind(managers.to_vec())
            .bind(wire::int(limit));
    wire::rows(&session.fetch_all(statement).await?, |row| {
        Ok(Unmirrored {
            lane_uid: wire::column(row, "lane_uid")?,
            tenant: wire::column(row, "tenant")?,
            class: wire::named(row, "class", Class::parse)?,
            track_id: wire::column(row, "track_id")?,
            task_type: wire::named(row, "type", TaskType::parse)?,
            workspace: wire::column(row, "workspace")?,
        })
    })
}

/// Whose a document is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentOwner {
    pub tenant: String,
    pub workspace: Option<String>,
}

/// `None`: there is no such document.
pub async fn document_owner(mut session: impl Session, document_id: Uuid) -> Result<Option<DocumentOwner>, StoreError> {
    let statement = sqlx::query("select tenant, workspace from sluice.document_owner($1)").bind(document_id);
    let rows = session.fetch_all(statement).await?;
    let owner = |row: &PgRow| {
        Ok(DocumentOwner { tenant: wire::column(row, "tenant")?, workspace: wire::column(row, "workspace")? })
    };
    rows.first().map(owner).transpose()
}

/// A task that followed from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowOn {
    pub root_id: Uuid,
    pub track_id: Uuid,
    pub task_type: TaskType,
    pub state: State,
}

/// Of each root the newest first, at most `limit`.
pub async fn follow_ons(mut session: impl Session, roots: &[Uuid], limit: u32) -> Result<Vec<FollowOn>, StoreError> {
    let statement = sqlx::query("select root_id, track_id, type, state from sluice.follow_ons($1, $2)")
        .bind(roots.to_vec())
        .bind(wire::int(limit));
    wire::rows(&session.fetch_all(statement).await?, |row| {
        Ok(FollowOn {
            root_id: wire::column(row, "root_id")?,
            track_id: wire::column(row, "track_id")?,
            task_type: wire::named(row, "type", TaskType::parse)?,
            state: wire::named(row, "state", State::parse)?,
        })
    })
}
