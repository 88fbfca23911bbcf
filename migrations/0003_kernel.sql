-- What the other functions are made of. Names with a leading underscore are granted to nobody.

set local role sluice_owner;

-- ── Input ───────────────────────────────────────────────────────────────────────────────────────────────────────────
-- A claim and a mark need two snapshots, so every writing function refuses an isolation that has but one.
create function sluice._check_isolation() returns void
language plpgsql stable set search_path = pg_catalog as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'this transaction is %, but sluice needs READ COMMITTED', upper(current_setting('transaction_isolation'))
      using errcode = '25001', hint = 'begin the transaction with ISOLATION LEVEL READ COMMITTED';
  end if;
end $$;

-- One call takes at most 1,000 items: each may lock a lane, and the server's lock table is shared by all sessions.
create function sluice._check_batch(p_ids uuid[], p_attempts int[] default null) returns void
language plpgsql immutable set search_path = pg_catalog as $$
begin
  if cardinality(p_ids) > 1000 then
    raise exception '% track ids in one call', cardinality(p_ids)
      using errcode = '54000', hint = 'send at most 1000 in one call';
  end if;
  if p_ids is null or array_position(p_ids, null) is not null then
    raise exception 'a track id is null' using errcode = '22004', hint = 'send an array without nulls';
  end if;
  if p_attempts is not null and (cardinality(p_attempts) <> cardinality(p_ids) or array_position(p_attempts, null) is not null) then
    raise exception '% track ids, but % attempts', cardinality(p_ids), cardinality(array_remove(p_attempts, null))
      using errcode = '2202E', hint = 'send one attempt for each track id, none of them null';
  end if;
end $$;

create function sluice._bad_input(p_message text, p_hint text default null) returns void
language plpgsql immutable set search_path = pg_catalog as $$
begin
  raise exception '%', p_message using errcode = '22023', hint = coalesce(p_hint, '');
end $$;

-- ── Identity ────────────────────────────────────────────────────────────────────────────────────────────────────────
-- A UUID of version 7: time first, so that neighbours in time are neighbours in an index and in a partition.
create function sluice._uuid_v7() returns uuid
language sql volatile parallel safe
return (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid;

-- The lowest UUID of version 7 that a moment can have; the edges of partitions.
create function sluice._uuid_at(p_at timestamptz) returns uuid
language sql immutable parallel safe
return (encode(substring(int8send((extract(epoch from p_at) * 1000)::bigint) from 3), 'hex') || '00000000000000000000')::uuid;

-- ── Locks of lanes ──────────────────────────────────────────────────────────────────────────────────────────────────
-- Whoever frees a slot of a lane or fills it holds that lane's key shared until the commit. A mark (is_full, is_empty)
-- is set only by one that got the key exclusively, without waiting, and that counted again in a statement begun after
-- that. So a mark cannot miss a change: the change is either counted, or it comes later and sees the mark.
create function sluice._share_lanes(p_lanes int[]) returns void
language plpgsql volatile set search_path = pg_catalog as $$
begin
  perform pg_advisory_xact_lock_shared(1936487541, s.l) from (select distinct l from unnest(p_lanes) l order by l) s;
end $$;

-- After the change, in a statement of its own: wakes the lanes whose mark stands. Many may wake one lane at once. A wake
-- that is there already serves: whoever takes it away takes the marks away, and cannot set them while we hold the key.
create function sluice._wake_lanes(p_lanes int[], p_freed boolean, p_filled boolean) returns void
language plpgsql volatile set search_path = pg_catalog as $$
begin
  insert into sluice.lane_wakes (lane_id)
  select l.lane_id from sluice.lane_turns l
   where l.lane_id = any (p_lanes) and (l.is_full or l.is_empty) and (p_freed and l.is_full or p_filled and l.is_empty)
     and not exists (select from sluice.lane_wakes w where w.lane_id = l.lane_id);
end $$;

-- ── History and mirrors ─────────────────────────────────────────────────────────────────────────────────────────────
create function sluice._event(p_kind text, p_track_id uuid, p_lane int, p_attempt int, p_actor text, p_detail text) returns void
language plpgsql volatile set search_path = pg_catalog as $$
begin
  insert into sluice.task_events (kind, track_id, lane_id, attempt, actor, detail)
  values (p_kind, p_track_id, p_lane, p_attempt, left(p_actor, 253), left(p_detail, 1024));
end $$;

create function sluice._dirty(p_mirrors bigint[]) returns void
language plpgsql volatile set search_path = pg_catalog as $$
begin
  insert into sluice.mirror_dirty (mirror_id) select distinct m from unnest(p_mirrors) m where m is not null;
end $$;

-- ── Lanes ───────────────────────────────────────────────────────────────────────────────────────────────────────────
-- What a cap comes to under a pool's clamp; 0 = no cap, which a clamp leaves alone.
create function sluice._effective_cap(p_cap int, p_clamp int) returns int
language sql immutable parallel safe
return case when p_cap = 0 or p_clamp is null then p_cap else least(p_cap, p_clamp) end;

create function sluice._class_of(p_type sluice.task_type) returns sluice.lane_class
language sql immutable parallel safe
return case when p_type in ('deletion', 'workspace_wipe') then 'lifecycle'::sluice.lane_class else 'ingest'::sluice.lane_class end;

-- Where a lane that wakes, or comes new to a pool, starts its turn: beside the lowest that is waiting for its turn now.
-- Idling earns no credit, and nobody is put behind the others.
create function sluice._turn_floor(p_pool int) returns bigint
language plpgsql stable set search_path = pg_catalog as $$
begin
  return (select greatest(p.vfloor, p.scan_next + 1,
                  (select l.vtime from sluice.lane_turns l
                    where l.pool_id = p_pool and not l.is_full and not l.is_empty and not l.is_held and l.vtime > p.scan_floor
                    order by l.vtime limit 1))
    from sluice.pools p where p.pool_id = p_pool);
end $$;

-- The lane of a tenant and a class; made with its pool's defaults if there is none.
create function sluice._lane(p_tenant text, p_class sluice.lane_class) returns int
language plpgsql volatile set search_path = pg_catalog as $$
declare
  v_lane int;
begin
  select l.lane_id into v_lane from sluice.tenant_lanes l where l.tenant = p_tenant and l.class = p_class;
  if found then
    return v_lane;
  end if;
  insert into sluice.tenant_lanes (tenant, class, pool_id, max_running, effective_max_running, effective_reason)
  select p_tenant, p_class, p.pool_id, d.cap, sluice._effective_cap(d.cap, d.clamp),
         case when sluice._effective_cap(d.cap, d.clamp) <> d.cap then p.clamp_reason end
    from sluice.pools p,
         lateral (select case p_class when 'ingest' then p.ingest_cap else p.lifecycle_cap end as cap,
                         case p_class when 'ingest' then p.ingest_clamp else p.lifecycle_clamp end as clamp) d
   where p.pool = 'default'
  on conflict (tenant, class) do nothing
  returning lane_id into v_lane;
  if v_lane is null then
    -- another session was first
    select l.lane_id into strict v_lane from sluice.tenant_lanes l where l.tenant = p_tenant and l.class = p_class;
    return v_lane;
  end if;
  insert into sluice.lane_turns (lane_id, pool_id, cap, weight, vtime)
  select l.lane_id, l.pool_id, case l.effective_max_running when 0 then 2147483647 else l.effective_max_running end, l.weight,
         sluice._turn_floor(l.pool_id)
    from sluice.tenant_lanes l where l.lane_id = v_lane;
  return v_lane;
end $$;

-- ── Failure classes: `semantics.md` §7; `domain/failure.rs` has the same table, and a test compares them ────────────
create function sluice._is_permanent(p_class text) returns boolean
language sql immutable parallel safe
return case
    when p_class in ('timeout_phase_convert', 'timeout_phase_extract', 'provider_unavailable', 'interrupted', 'unknown') then false
    when p_class in ('circuit_breaker', 'document_too_large', 'invalid_document', 'password_required', 'no_text_layer',
                     'empty_document', 'embedding_limit', 'graph_merge', 'provider_misconfigured', 'llm_unsupported_param',
                     'source_forbidden', 'source_not_found', 'unsupported_type', 'document_deleted', 'worker_lost', 'cancelled') then true
  end;  -- null: no such class

-- ── Rows in the lock order: tasks, then documents ───────────────────────────────────────────────────────────────────
-- Locks the tasks that are live, in order whatever the plan, and answers them. Who locks several must act on these alone: a
-- later statement may find one more, come back by a retry, and would lock it out of order.
create function sluice._lock_tasks(p_track_ids uuid[]) returns uuid[]
language plpgsql volatile set search_path = pg_catalog as $$
begin
  return array(select t.track_id from sluice.tasks t where t.track_id = any (p_track_ids) order by t.track_id for no key update);
end $$;

-- Locks the documents whose newest tasks these are. Who changes them in several steps calls it before the first one.
create function sluice._lock_documents(p_track_ids uuid[]) returns void
language plpgsql volatile set search_path = pg_catalog as $$
begin
  perform from sluice.documents d where d.task_id = any (p_track_ids) order by d.document_id for no key update;
end $$;

-- ── Documents ───────────────────────────────────────────────────────────────────────────────────────────────────────
-- What the end of its newest task makes of a document.
create function sluice._end_documents(p_track_ids uuid[]) returns void
language plpgsql volatile set search_path = pg_catalog as $$
begin
  perform sluice._lock_documents(p_track_ids);
  delete from sluice.documents d using sluice.tasks_archive t
   where t.track_id = any (p_track_ids) and d.document_id = t.document_id and d.task_id = t.track_id
     and t.type = 'deletion' and t.state = 'completed';
  update sluice.documents d
     set status = case t.state when 'completed' then 'completed' when 'failed' then 'failed'
                               else coalesce(d.published_status, 'cancelled') end,
         published_status = case when t.state = 'completed' and t.type not in ('pdf_processing', 'upload') then 'completed' else d.published_status end,
         stage = null,
         pdf_status = case when t.type <> 'pdf_processing' then d.pdf_status
                           when t.state = 'cancelled' and d.pdf_status = 'completed' then d.pdf_status
                           else t.state::text end,
         failure_class = case t.state when 'completed' then null when 'failed' then t.failure_class
                                      else case when d.published_status is null then 'cancelled' end end,
         updated_at = now()
    from sluice.tasks_archive t
   where t.track_id = any (p_track_ids) and d.document_id = t.document_id and d.task_id = t.track_id;
end $$;

-- A wiped workspace has no documents any more, but for those that something new is under way for. Their rows are locked first:
-- what an enqueue made of one meanwhile, only a later statement sees.
create function sluice._wipe_documents(p_track_ids uuid[]) returns void
language plpgsql volatile set search_path = pg_catalog as $$
declare
  v_documents uuid[];
begin
  v_documents := array(
    select d.document_id from sluice.documents d
     where exists (select from sluice.tasks_archive t join sluice.tenant_lanes l on l.lane_id = t.lane_id
                    where t.track_id = any (p_track_ids) and t.workspace = d.workspace and l.tenant = d.tenant)
     order by d.document_id for update);
  delete from sluice.documents d
   where d.document_id = any (v_documents) and not exists (select from sluice.tasks t where t.track_id = d.task_id);
end $$;

-- What a task that goes back to pending makes of it.
create function sluice._requeue_documents(p_track_ids uuid[]) returns void
language plpgsql volatile set search_path = pg_catalog as $$
begin
  perform sluice._lock_documents(p_track_ids);
  update sluice.documents d
     set status = 'pending', stage = null, failure_class = null, updated_at = now(),
         pdf_status = case when t.type = 'pdf_processing' then 'pending' else d.pdf_status end
    from sluice.tasks t
   where t.track_id = any (p_track_ids) and d.document_id = t.document_id and d.task_id = t.track_id;
end $$;

-- What a worker says of a document: {"status", "stage", "pdf_status", "pages"}, each as it wants it from now on.
create function sluice._say_document(p_track_id uuid, p_document jsonb) returns void
language plpgsql volatile set search_path = pg_catalog as $$
begin
  update sluice.documents d
     set status = coalesce(left(p_document ->> 'status', 64), d.status),
         stage = case when p_document ? 'stage' then left(p_document ->> 'stage', 64) else d.stage end,
         pdf_status = coalesce(left(p_document ->> 'pdf_status', 64), d.pdf_status),
         pages = coalesce((p_document ->> 'pages')::int, d.pages),
         published_status = case when p_document ->> 'status' in ('completed', 'partial_success')
                                 then p_document ->> 'status' else d.published_status end,
         updated_at = now()
   where d.task_id = p_track_id;
end $$;

-- ── Ends ────────────────────────────────────────────────────────────────────────────────────────────────────────────
-- Every end of a task is this one statement: it takes the row from the live table, if it is in one of the states and
-- (unless p_attempts is null) of that attempt, and keeps it in the archive; a stopping one ends as cancelled, whatever
-- was asked. Then the document, the lanes and the mirror hear of it.
create function sluice._end_tasks(p_track_ids uuid[], p_attempts int[], p_from sluice.task_state[], p_end sluice.task_state,
                                  p_results jsonb[] default null, p_class text default null, p_error text default null,
                                  p_message text default null)
returns table (track_id uuid, state text, lane_id int, attempt int)
language plpgsql volatile
set search_path = pg_catalog set plan_cache_mode = force_generic_plan set jit = off set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_ids uuid[];
  v_states text[];
  v_lanes int[];
  v_attempts int[];
  v_with_document uuid[];
  v_wiped uuid[];
  v_mirrors bigint[];
begin
  with asked as (
    select a.track_id, a.attempt, a.result from unnest(p_track_ids, p_attempts, p_results) a (track_id, attempt, result)
     order by a.track_id),  -- the lock order
  ended as (
    delete from sluice.tasks t using asked a
     where t.track_id = a.track_id and (p_attempts is null or t.attempt = a.attempt) and t.state = any (p_from)
    returning t.track_id, t.id, t.lane_id, t.leased, t.type, t.priority, t.suspended, t.max_attempts, t.failures, t.retries,
      t.lost_leases, t.timeouts, t.attempt, t.timeout_secs, t.claim_sequence, t.claim_number, t.worker_id, t.created_at, t.available_at,
      t.started_at, t.deadline, t.cancel_at, t.cancel_by, t.cancel_reason, t.progressed, t.progress, t.stage, t.message,
      t.workspace, t.document_id, t.parent_id, t.root_id, t.mirror_id, t.exclusive_hash, t.cost, t.tokens, t.payload, a.result,
      case t.state when 'stopping' then 'cancelled' else p_end end as state),
  kept as (
    insert into sluice.tasks_archive (track_id, id, lane_id, state, type, priority, ready, suspended, max_attempts, failures,
      retries, lost_leases, timeouts, attempt, timeout_secs, claim_sequence, claim_number, worker_id, created_at, available_at, started_at,
      deadline, finished_at, cancel_at, cancel_by, cancel_reason, progressed, progress, stage, message, workspace, document_id,
      parent_id, root_id, mirror_id, exclusive_hash, failure_class, error, cost, tokens, payload, result)
    select e.track_id, e.id, e.lane_id, e.state, e.type, e.priority, false, e.suspended, e.max_attempts, e.failures,
      e.retries, e.lost_leases, e.timeouts, e.attempt, e.timeout_secs, e.claim_sequence, e.claim_number, e.worker_id, e.created_at,
      e.available_at, e.started_at, e.deadline, now(), e.cancel_at, e.cancel_by, e.cancel_reason, e.progressed, e.progress,
      e.stage, case e.state when 'completed' then e.message else coalesce(p_message, e.message) end, e.workspace, e.document_id,
      e.parent_id, e.root_id, e.mirror_id, e.exclusive_hash,
      case e.state when 'failed' then p_class when 'cancelled' then 'cancelled' end, case e.state when 'failed' then p_error end,
      e.cost, e.tokens, e.payload, e.result
      from ended e
    returning track_id, state, type, lane_id, attempt, worker_id, document_id, mirror_id),
  missed as (
    insert into sluice.lane_misses (lane_id, misses)
    select e.lane_id, count(*) from ended e where e.leased and e.state <> 'completed' group by e.lane_id)
  select array_agg(k.track_id), array_agg(k.state::text), array_agg(k.lane_id), array_agg(k.attempt),
         array_agg(k.track_id) filter (where k.document_id is not null),
         array_agg(k.track_id) filter (where k.type = 'workspace_wipe' and k.state = 'completed'),
         array_agg(k.mirror_id) filter (where k.mirror_id is not null)
    into v_ids, v_states, v_lanes, v_attempts, v_with_document, v_wiped, v_mirrors
    from kept k;
  if v_ids is null then
    return;
  end if;
  if v_with_document is not null then
    perform sluice._end_documents(v_with_document);
  end if;
  if v_wiped is not null then
    perform sluice._wipe_documents(v_wiped);
  end if;
  if 'pending' <> all (p_from) then
    perform sluice._share_lanes(v_lanes);
    perform sluice._wake_lanes(v_lanes, true, false);
  end if;
  if v_mirrors is not null then
    perform sluice._dirty(v_mirrors);
  end if;
  return query select u.track_id, u.state, u.lane_id, u.attempt from unnest(v_ids, v_states, v_lanes, v_attempts) u (track_id, state, lane_id, attempt);
end $$;

-- What became of tasks that a write did not find as it wanted them: `refused` (it ended), `lost` (another attempt, or
-- not running), `not_found`.
create function sluice._why_not(p_track_id uuid, p_attempt int) returns text
language sql stable set search_path = pg_catalog as $$
  select coalesce(
    (select 'lost' from sluice.tasks t where t.track_id = p_track_id),
    (select case when t.attempt = p_attempt then 'refused' else 'lost' end from sluice.tasks_archive t where t.track_id = p_track_id),
    'not_found')
$$;

-- A task that goes back to pending: its worker is gone from it, its lane has a slot and perhaps a head more.
create function sluice._requeued(p_track_ids uuid[], p_lanes int[], p_mirrors bigint[]) returns void
language plpgsql volatile set search_path = pg_catalog as $$
begin
  perform sluice._requeue_documents(p_track_ids);
  insert into sluice.lane_misses (lane_id, misses) select l, count(*) from unnest(p_lanes) l group by l;
  perform sluice._share_lanes(p_lanes);
  perform sluice._wake_lanes(p_lanes, true, true);
  perform sluice._dirty(p_mirrors);
end $$;
