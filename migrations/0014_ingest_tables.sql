-- Schema `ingest`: what the pipeline makes of documents. docs/pipeline.md says what each stage writes and how to read it.
--
-- A generation is all that was made of a document at one time: its chunks, vectors and share of the graph. It is written in
-- the transaction that completes its task, so that no reader meets half of one and no unpublished one is ever left behind;
-- what is dear to compute waits for it in `artifacts`. A workspace that is not named is '' here.

create schema if not exists ingest;
alter schema ingest owner to sluice_owner;
revoke all on schema ingest from public;
grant usage on schema ingest to sluice_worker, sluice_operator, sluice_reader;

set local role sluice_owner;

-- What came in, as markdown. A newer content of a document has a higher number; publishing one lets the older go.
create table ingest.contents (
  content_id         bigint generated always as identity primary key,
  document_id        uuid not null,
  tenant             text not null,
  workspace          text not null,
  title              text,
  source             text not null,                                      -- where it came from, for people
  markdown           text not null,
  content_hash       bytea not null,                                     -- SHA-256
  track_id           uuid not null,                                      -- the task that took it in
  created_at         timestamptz not null default now()
);
create index content_of on ingest.contents (document_id, content_id);
create index content_in on ingest.contents (tenant, workspace);

-- The published generations: one a document, and that is a rule of the table.
create sequence ingest.version_ids;
create table ingest.document_versions (
  version_id         bigint primary key,
  document_id        uuid not null unique,
  tenant             text not null,
  workspace          text not null,
  content_id         bigint,                                             -- null: given facts, no text
  title              text,
  chunker            text,
  extractor          text,
  embedder           text,
  chunks             int not null,
  track_id           uuid not null,                                      -- the task and the attempt that published it
  attempt            int not null,
  published_at       timestamptz not null default now()
);
create index version_in on ingest.document_versions (tenant, workspace);

create table ingest.chunks (
  version_id         bigint not null,
  ordinal            int not null,                                       -- from 0, in the order of the text
  document_id        uuid not null,
  tenant             text not null,
  workspace          text not null,
  heading            text not null,                                      -- those above it, outermost first, with ' > ' between
  content            text not null,
  start_char         int not null,                                       -- in the markdown, in characters from 0
  primary key (version_id, ordinal)
);
create index chunk_in on ingest.chunks (tenant, workspace);
create index chunk_text on ingest.chunks using gin (to_tsvector('simple', content));

create table ingest.embeddings (
  version_id         bigint not null,
  ordinal            int not null,
  tenant             text not null,
  workspace          text not null,
  model              text not null,
  embedding          real[] not null,
  primary key (version_id, ordinal)
);
create index embedding_in on ingest.embeddings (tenant, workspace);

-- The graph of a workspace, shared by its documents. An id is a hash of tenant, workspace and name, so that no two tenants
-- can meet in one row. What no generation supports any more is gone.
create table ingest.entities (
  entity_id          uuid primary key,
  tenant             text not null,
  workspace          text not null,
  name               text not null,                                      -- as it was first seen
  name_key           text not null,                                      -- lower case
  kind               text not null,
  description        text,
  created_at         timestamptz not null default now()
);
create index entity_named on ingest.entities (tenant, workspace, name_key);

create table ingest.relations (
  relation_id        uuid primary key,
  tenant             text not null,
  workspace          text not null,
  source_id          uuid not null,
  target_id          uuid not null,
  kind               text not null,
  description        text,
  created_at         timestamptz not null default now()
);
create index relation_in on ingest.relations (tenant, workspace);
create index relation_from on ingest.relations (source_id);
create index relation_to on ingest.relations (target_id);

-- Which generation supports what, and where. No foreign keys: whoever changes the graph holds its lock (`try_lock_graph`).
create table ingest.provenance (
  version_id         bigint not null,
  item_id            uuid not null,                                      -- of an entity or a relation
  ordinal            int not null,                                       -- the chunk; -1: a given fact
  mentions           int not null,
  primary key (version_id, item_id, ordinal)
);
create index provenance_of on ingest.provenance (item_id);

-- What a stage has paid for, so that a later attempt does not pay again. Rows are added and deleted, never changed. Each
-- belongs to a document, so that a deletion takes all that was derived from it.
create table ingest.artifacts (
  document_id        uuid not null,
  kind               text not null check (kind in ('extraction', 'embedding')),
  artifact_key       bytea not null,                                     -- SHA-256 of model, parameters and text
  tenant             text not null,
  workspace          text not null,
  model              text not null,
  extraction         jsonb,
  embedding          real[],
  created_at         timestamptz not null default now(),
  primary key (document_id, kind, artifact_key),
  check ((kind = 'extraction') = (extraction is not null) and (kind = 'embedding') = (embedding is not null))
);
create index artifact_in on ingest.artifacts (tenant, workspace);

-- Leftovers that could not be swept, for people to look at. Those that were dealt with count no more.
create table ingest.compensation_quarantine (
  document_id        uuid primary key,
  tenant             text not null,
  reason             text not null,
  tries              int not null default 1,
  created_at         timestamptz not null default now(),
  resolved_at        timestamptz
);
