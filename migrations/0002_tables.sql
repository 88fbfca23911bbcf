-- The tables. Only functions of this schema write them; readers see them through views.
--
-- `tasks` holds live work only: the end of a task moves its row to `tasks_archive`. So nothing that ended costs a claim
-- anything, and an end writes one index instead of every index of the live table.

set local role sluice_owner;

create type sluice.task_state as enum ('pending', 'processing', 'stopping', 'completed', 'failed', 'cancelled');
create type sluice.task_type as enum ('pdf_processing', 'insert', 'upload', 'scan', 'reindex', 'knowledge_injection',
                                      'deletion', 'workspace_wipe');
create type sluice.lane_class as enum ('ingest', 'lifecycle');
create type sluice.lane_policy as enum ('none', 'hold', 'hold_and_drain');

-- ── Pools: settings that SQL must know ──────────────────────────────────────────────────────────────────────────────
create table sluice.pools (
  pool_id            int generated always as identity primary key,
  pool               text not null unique check (length(pool) between 1 and 253),
  ingest_cap         int not null default 3 check (ingest_cap >= 0),     -- of a new lane; 0 = no cap
  lifecycle_cap      int not null default 3 check (lifecycle_cap >= 0),
  ingest_clamp       int check (ingest_clamp > 0),                       -- local provider: nothing above it
  lifecycle_clamp    int check (lifecycle_clamp > 0),
  clamp_reason       text,
  lease_secs         int not null default 120 check (lease_secs between 1 and 86400),
  auto_resume        boolean not null default true,                      -- false: an interrupted task fails
  held               boolean not null default false,                     -- hold_all
  hold_reason        text,
  vfloor             bigint not null default 0,                          -- a lane that wakes starts its turn no lower
  scan_floor         bigint not null default -1,                         -- claims read the turns above it
  scan_next          bigint not null default -1,
  scan_floor_at      timestamptz not null default '-infinity',
  wake_floor         bigint not null default 0,                          -- and the wakes from it on
  wake_next          bigint not null default 0,
  full_scan_at       timestamptz not null default '-infinity'            -- when a claim last read without the two
) with (fillfactor = 50);
insert into sluice.pools (pool) values ('default');

-- ── Lanes: one tenant × one class ───────────────────────────────────────────────────────────────────────────────────
create table sluice.tenant_lanes (
  lane_id            int generated always as identity primary key,
  tenant             text not null check (length(tenant) between 1 and 253),
  class              sluice.lane_class not null,
  pool_id            int not null,
  max_running        int not null check (max_running >= 0),              -- as asked for; 0 = no cap
  effective_max_running int not null,                                    -- what holds, 0 = no cap
  effective_reason   text,                                               -- why it differs
  is_default         boolean not null default true,                      -- nobody has set its limits
  weight             int not null default 1 check (weight between 1 and 1000),
  policy             sluice.lane_policy not null default 'none',
  policy_reason      text,
  allowed_sources    text[] not null default '{}',
  cluster            text,                                               -- who manages it
  resource_uid       text,
  mirror_limit       int not null default 0 check (mirror_limit >= 0),   -- resources made for rows born elsewhere
  created_at         timestamptz not null default now(),
  cooled_until       timestamptz,                                        -- rate limited by a provider
  cool_downs         int not null default 0,
  unique (tenant, class)
);

-- The part of a lane that a claim writes, apart from the rest, so that a turn rewrites 60 bytes and two indexes.
-- Its key is not declared: a unique index visits every dead version of a key at each insert, one more with every turn while
-- a long transaction keeps them. `_lane` alone makes rows, one for each of `tenant_lanes`.
create table sluice.lane_turns (
  lane_id            int not null,
  pool_id            int not null,
  cap                int not null,                                       -- 2147483647 = no cap
  weight             int not null,
  vtime              bigint not null,
  served             bigint not null default 0,                          -- claims so far; numbers them
  oldest             bigint not null default 0,                          -- no claim below this number still runs
  idle_served        bigint not null default 0,                          -- `served` when a wake found it idle
  is_full            boolean not null default false,
  is_empty           boolean not null default false,
  is_held            boolean not null default false
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
create index lane_turn_of on sluice.lane_turns (lane_id);
create index lane_turn on sluice.lane_turns (pool_id, vtime, lane_id) where not is_full and not is_empty and not is_held;
-- For those who free and fill: most lanes bear no mark, and then they read nothing.
create index lane_marked on sluice.lane_turns (lane_id) where is_full or is_empty;

-- Who fills or frees a marked lane says so here, beside all others who do; the next claim takes the mark away. A row of
-- their own, because clearing the mark itself would queue them all on one row and hide that lane from claimers.
create table sluice.lane_wakes (
  wake_id            bigint generated always as identity primary key,
  lane_id            int not null
) with (fillfactor = 100, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
create index lane_wake on sluice.lane_wakes (lane_id);

-- Claims that did not end as completed, since the lane was idle. What completed is what was served, less these and less
-- what runs: so it is counted without a write of those that complete.
create table sluice.lane_misses (
  lane_id            int not null,
  misses             bigint not null
) with (autovacuum_vacuum_scale_factor = 0.05);
create index lane_miss on sluice.lane_misses (lane_id);

-- ── Tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────────
create sequence sluice.task_ids cache 1;
create table sluice.tasks (
  track_id           uuid not null,
  id                 bigint not null,                                    -- the order of arrival
  lane_id            int not null,
  state              sluice.task_state not null default 'pending',
  type               sluice.task_type not null,
  priority           smallint not null default 0,
  ready              boolean not null default true,                      -- pending, not suspended, due
  suspended          boolean not null default false,
  max_attempts       smallint not null default 3,
  failures           smallint not null default 0,                        -- attempts that the handler failed
  retries            smallint not null default 0,                        -- by hand
  lost_leases        smallint not null default 0,
  timeouts           smallint not null default 0,                        -- in a row, without progress
  attempt            int not null default 0,
  timeout_secs       int not null default 7200,
  claim_sequence     bigint,
  claim_number       bigint,                                             -- of its lane
  worker_id          uuid,
  created_at         timestamptz not null default now(),
  available_at       timestamptz not null default now(),
  started_at         timestamptz,                                        -- of the current attempt
  lease_until        timestamptz,
  leased             boolean not null default false,                     -- a worker holds it: processing or stopping
  deadline           timestamptz,
  finished_at        timestamptz,
  cancel_at          timestamptz,
  cancel_by          text,
  cancel_reason      text,
  progressed         boolean not null default false,                     -- in the current attempt
  progress           real,
  stage              text,
  message            text,
  workspace          text,
  document_id        uuid,
  parent_id          uuid,
  root_id            uuid,
  mirror_id          bigint,
  exclusive_hash     uuid,
  failure_class      text,
  error              text,
  cost               double precision not null default 0,                -- in the provider's currency
  tokens             bigint not null default 0,
  payload            jsonb not null default '{}',
  result             jsonb,
  constraint tasks_pkey primary key (track_id),
  constraint tasks_live check (state in ('pending', 'processing', 'stopping')),
  constraint tasks_leased check (leased = (state in ('processing', 'stopping')) and leased = (lease_until is not null))
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index task_head on sluice.tasks (lane_id, priority desc, id) where state = 'pending' and ready;
-- On a flag of its own: an end looks for its rows by state and key and must not be drawn to this index, and a renewed
-- lease changes no index. It serves the count of a lane and, read whole, everything that looks at what runs.
-- The number lets a count begin behind the dead entries of what ended, when a long transaction keeps those alive.
create index task_running on sluice.tasks (lane_id, claim_number) where leased;
create index task_due on sluice.tasks (available_at) where state = 'pending' and not ready and not suspended;
create index task_tree on sluice.tasks (root_id) where root_id is not null;
create unique index task_exclusive on sluice.tasks (exclusive_hash) where exclusive_hash is not null;

create table sluice.tasks_archive (like sluice.tasks including defaults)
  partition by range (track_id);
alter table sluice.tasks_archive
  add primary key (track_id),
  add constraint tasks_archive_ended check (state in ('completed', 'failed', 'cancelled'));
create index archive_failed on sluice.tasks_archive (lane_id, finished_at) where state = 'failed';
create index archive_tree on sluice.tasks_archive (root_id) where root_id is not null;
create table sluice.tasks_archive_default partition of sluice.tasks_archive default;

-- ── Documents: what the status mapping reads. Only the newest task writes one ───────────────────────────────────────
create table sluice.documents (
  document_id        uuid primary key,
  tenant             text not null,
  workspace          text,
  status             text not null,
  stage              text,
  pdf_status         text,
  pages              int,
  failure_class      text,
  published_status   text,                                               -- of the generation that readers see
  task_id            uuid not null,                                      -- the newest
  created_at         timestamptz not null default now(),
  updated_at         timestamptz not null default now()
) with (fillfactor = 85);
create index document_newest on sluice.documents (task_id);

-- ── Keys: kept as long as their retention or their resource, whatever becomes of the task ───────────────────────────
create table sluice.task_keys (
  scope              text not null,                                      -- tenant, or cluster
  kind               text not null check (kind in ('idempotency', 'resource')),
  key                text not null,
  track_id           uuid not null,
  content_hash       bytea,
  created_at         timestamptz not null default now(),
  primary key (scope, kind, key)
);
create index task_key_age on sluice.task_keys (created_at) where kind = 'idempotency';

-- ── Mirrors: one row a mirrored resource; transitions only append to mirror_dirty ───────────────────────────────────
create table sluice.mirrors (
  mirror_id          bigint generated always as identity primary key,
  cluster            text not null,
  namespace          text not null,
  name               text not null,
  uid                text not null,
  track_id           uuid not null,                                      -- the root task
  rev                bigint not null default 1,
  mirrored_rev       bigint not null default 0,
  retains            boolean not null default false,                     -- the task outlives its resource
  lane_id            int,                                                -- of a resource that was made for its task
  unique (cluster, uid)
) with (fillfactor = 70);
create index mirror_made on sluice.mirrors (lane_id) where lane_id is not null;
create index mirror_behind on sluice.mirrors (cluster, mirror_id) where rev <> mirrored_rev;
create table sluice.mirror_dirty (
  dirty_id           bigint generated always as identity primary key,
  mirror_id          bigint not null
);

-- ── History of what is not the plain path ───────────────────────────────────────────────────────────────────────────
create sequence sluice.task_event_ids;
create table sluice.task_events (
  at                 timestamptz not null default now(),
  event_id           bigint not null default nextval('sluice.task_event_ids'),
  track_id           uuid,
  lane_id            int,
  kind               text not null,
  attempt            int,
  worker_id          uuid,
  actor              text,
  detail             text
) partition by range (at);
create index task_event_of on sluice.task_events (track_id, at);
create table sluice.task_events_default partition of sluice.task_events default;

-- ── Workers ─────────────────────────────────────────────────────────────────────────────────────────────────────────
create table sluice.workers (
  worker_id          uuid primary key,
  pool_id            int not null,
  pod_name           text,
  pod_uid            text,
  version            text,
  slots              int not null default 1,
  registered_at      timestamptz not null default now(),
  alive_until        timestamptz not null,
  draining           boolean not null default false,
  stands_for_pool    boolean not null default false                      -- the claims of a Job pool
) with (fillfactor = 50);

