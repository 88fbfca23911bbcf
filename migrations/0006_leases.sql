-- Leases: what a worker says while it works.

set local role sluice_owner;

-- A process enters a pool. Its id is random, never a pod's name; one whose row is gone may come back under p_worker.
create function sluice.register_worker(p_pool text default 'default', p_slots int default 1, p_version text default null,
                                       p_pod_name text default null, p_pod_uid text default null,
                                       p_stands_for_pool boolean default false, p_worker uuid default null)
returns uuid
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_worker uuid := coalesce(p_worker, gen_random_uuid());
begin
  perform sluice._check_isolation();
  insert into sluice.workers (worker_id, pool_id, pod_name, pod_uid, version, slots, stands_for_pool, alive_until)
  select v_worker, p.pool_id, left(p_pod_name, 253), left(p_pod_uid, 64), left(p_version, 64), greatest(1, p_slots), p_stands_for_pool,
         now() + make_interval(secs => p.lease_secs)
    from sluice.pools p where p.pool = p_pool
  on conflict (worker_id) do update set alive_until = excluded.alive_until;
  if not found then
    raise exception 'there is no pool %', quote_literal(left(p_pool, 253)) using errcode = 'P0002', hint = 'make it with set_pool first';
  end if;
  return v_worker;
end $$;

-- Gives tasks back to pending, not counted as a failure; stopping ones end as cancelled. p_kind is the event's.
create function sluice._give_back(p_track_ids uuid[], p_attempts int[], p_kind text, p_reason text)
returns table (track_id uuid, outcome text, attempt int)
language plpgsql volatile set search_path = pg_catalog set jit = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  v_locked uuid[] := sluice._lock_tasks(p_track_ids);
  v_ids uuid[];
  v_attempts int[];
  v_lanes int[];
  v_mirrors bigint[];
begin
  perform sluice._lock_documents(v_locked);
  return query
    select e.track_id, e.state, e.attempt from sluice._end_tasks(p_track_ids, p_attempts, '{stopping}', 'cancelled') e;
  with given as (
    update sluice.tasks t
       set state = 'pending', leased = false, lease_until = null, deadline = null, worker_id = null, claim_sequence = null,
           stage = null, progress = null, message = null, ready = not t.suspended
      from unnest(p_track_ids, p_attempts) u (track_id, attempt)
     where t.track_id = u.track_id and t.track_id = any (v_locked) and t.attempt = u.attempt and t.state = 'processing'
    returning t.track_id, t.lane_id, t.attempt, t.mirror_id),
  noted as (
    insert into sluice.task_events (kind, track_id, lane_id, attempt, detail)
    select p_kind, g.track_id, g.lane_id, g.attempt, left(p_reason, 1024) from given g)
  select array_agg(g.track_id), array_agg(g.attempt), array_agg(g.lane_id), array_agg(g.mirror_id)
    into v_ids, v_attempts, v_lanes, v_mirrors from given g;
  if v_ids is not null then
    perform sluice._requeued(v_ids, v_lanes, v_mirrors);
    return query select u.track_id, 'released', u.attempt from unnest(v_ids, v_attempts) u (track_id, attempt);
  end if;
end $$;

-- Renews the leases of a worker's attempts. The first row speaks of the worker (track id null): `serving`, `draining` or
-- `unregistered`; then one an attempt: `renewed`; `cancel` (stop it, then call stopped; its lease is not renewed); `release`
-- (renewed, give it back); `busy` (another session holds the row, ask again); `lost` (not yours any more, write nothing).
-- p_sequence is that of the newest claim sent: what the rows say was claimed before it and the call does not name, a
-- claim whose reply never came, is given back.
create function sluice.heartbeat(p_worker uuid, p_sequence bigint, p_track_ids uuid[], p_attempts int[])
returns table (track_id uuid, attempt int, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog set jit = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_lease interval;
  v_draining boolean;
  v_renewed uuid[];
  v_unnamed uuid[];
  v_unnamed_attempts int[];
begin
  perform sluice._check_isolation();
  perform sluice._check_batch(p_track_ids, coalesce(p_attempts, '{}'));
  select make_interval(secs => p.lease_secs) into v_lease
    from sluice.workers w join sluice.pools p on p.pool_id = w.pool_id where w.worker_id = p_worker;
  update sluice.workers w set alive_until = now() + v_lease where w.worker_id = p_worker returning w.draining into v_draining;
  return query select null::uuid, null::int, case when not found then 'unregistered' when v_draining then 'draining' else 'serving' end;

  with asked as (
    select u.track_id, u.attempt from unnest(p_track_ids, p_attempts) u (track_id, attempt) order by u.track_id),
  mine as materialized (
    select t.track_id from asked a join sluice.tasks t on t.track_id = a.track_id and t.attempt = a.attempt
     where t.worker_id = p_worker and t.state = 'processing' for no key update of t skip locked),
  renewed as (
    update sluice.tasks t set lease_until = now() + coalesce(v_lease, interval '120 s') from mine m where t.track_id = m.track_id
    returning t.track_id)
  select array_agg(r.track_id) into v_renewed from renewed r;
  return query
  select a.track_id, a.attempt,
         case when t.track_id is null then 'lost'
              when t.state = 'stopping' then 'cancel'
              when a.track_id = any (v_renewed) then case l.policy when 'hold_and_drain' then 'release' else 'renewed' end
              else 'busy' end
    from unnest(p_track_ids, p_attempts) a (track_id, attempt)
    left join sluice.tasks t on t.track_id = a.track_id and t.attempt = a.attempt and t.worker_id = p_worker and t.leased
    left join sluice.tenant_lanes l on l.lane_id = t.lane_id;

  -- Rows that another session holds wait for the next heartbeat: we hold rows already, and must not wait for lower ones.
  select array_agg(t.track_id), array_agg(t.attempt) into v_unnamed, v_unnamed_attempts
    from (select t.track_id, t.attempt from sluice.tasks t
           where t.leased and t.worker_id = p_worker and t.claim_sequence < p_sequence and not t.track_id = any (p_track_ids)
             for no key update skip locked) t;
  if v_unnamed is not null then
    perform sluice._give_back(v_unnamed, v_unnamed_attempts, 'released', 'the reply to its claim never came');
  end if;
end $$;

-- The cheap probe between heartbeats: only what is to stop, as in heartbeat (`cancel`, `release`, `lost`), and a row with a
-- null track id if the worker is draining.
create function sluice.watch(p_worker uuid, p_track_ids uuid[])
returns table (track_id uuid, answer text)
language plpgsql stable security definer
set search_path = pg_catalog set jit = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
  perform sluice._check_batch(p_track_ids);
  return query
  select null::uuid, 'draining'::text from sluice.workers w where w.worker_id = p_worker and w.draining
  union all
  select a.track_id,
         case when t.track_id is null then 'lost' when t.state = 'stopping' then 'cancel' else 'release' end
    from unnest(p_track_ids) a (track_id)
    left join sluice.tasks t on t.track_id = a.track_id and t.worker_id = p_worker and t.leased
    left join sluice.tenant_lanes l on l.lane_id = t.lane_id
   where t.track_id is null or t.state = 'stopping' or l.policy = 'hold_and_drain';
end $$;

-- What a worker may say of a document: {"status", "stage", "pdf_status", "pages"}, or nothing.
create function sluice._check_document(p_document jsonb) returns void
language plpgsql immutable set search_path = pg_catalog as $$
begin
  if p_document is null or p_document = 'null' then
    return;
  elsif jsonb_typeof(p_document) <> 'object' or p_document - array['status', 'stage', 'pdf_status', 'pages'] <> '{}' then
    perform sluice._bad_input('the document is not an object of status, stage, pdf_status and pages', 'leave out what has not changed');
  elsif jsonb_typeof(p_document -> 'status') not in ('string', 'null') or jsonb_typeof(p_document -> 'stage') not in ('string', 'null') then
    perform sluice._bad_input('status or stage of the document is not a string', 'send a string, or leave it out');
  elsif p_document ->> 'pdf_status' not in ('pending', 'processing', 'completed', 'failed', 'cancelled') then
    perform sluice._bad_input(format('pdf_status is %L', left(p_document ->> 'pdf_status', 64)),
                              'it must be pending, processing, completed, failed or cancelled');
  elsif sluice._int(nullif(p_document -> 'pages', 'null'), 0, 0, 2147483647) is null then
    perform sluice._bad_input('pages of the document is not a whole number', 'send a number from 0');
  end if;
end $$;

-- What an attempt has come to: {"stage", "progress" (0 to 1), "message", "cost", "tokens" (both of the task so far, all
-- attempts), "document": {"status", "stage", "pdf_status", "pages"}}. Answers `ok`, `cancel` (noted, but stop), `lost`,
-- `refused` or `not_found`.
create function sluice.report(p_track_id uuid, p_attempt int, p_report jsonb) returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_task record;
begin
  perform sluice._check_isolation();
  if jsonb_typeof(p_report) is distinct from 'object'
     or p_report - array['stage', 'progress', 'message', 'cost', 'tokens', 'document'] <> '{}' then
    perform sluice._bad_input('the report is not an object of the known fields', 'send {"stage", "progress", "message", "cost", "tokens", "document"}');
  elsif jsonb_typeof(p_report -> 'progress') not in ('number', 'null') or (p_report ->> 'progress')::float8 not between 0 and 1
     or jsonb_typeof(p_report -> 'cost') not in ('number', 'null') or (p_report ->> 'cost')::float8 < 0
     or jsonb_typeof(p_report -> 'tokens') not in ('number', 'null') or (p_report ->> 'tokens')::numeric not between 0 and 9e18 then
    perform sluice._bad_input('progress, cost or tokens is not a number in its bounds', 'progress is from 0 to 1, the others from 0');
  end if;
  perform sluice._check_document(p_report -> 'document');
  update sluice.tasks t
     set stage = coalesce(left(p_report ->> 'stage', 64), t.stage),
         progress = coalesce((p_report ->> 'progress')::real, t.progress),
         message = coalesce(left(p_report ->> 'message', 1024), t.message),
         cost = greatest(t.cost, (p_report ->> 'cost')::float8),
         tokens = greatest(t.tokens, (p_report ->> 'tokens')::numeric::bigint),
         progressed = t.progressed or p_report ?| array['stage', 'progress']
   where t.track_id = p_track_id and t.attempt = p_attempt and t.leased
  returning t.state, t.document_id, t.mirror_id into v_task;
  if not found then
    return sluice._why_not(p_track_id, p_attempt);
  end if;
  if v_task.document_id is not null then
    perform sluice._say_document(p_track_id, jsonb_strip_nulls(jsonb_build_object('status', 'processing', 'stage', p_report -> 'stage'))
                                             || coalesce(nullif(p_report -> 'document', 'null'), '{}'));
  end if;
  perform sluice._dirty(array[v_task.mirror_id]);
  return case v_task.state when 'stopping' then 'cancel' else 'ok' end;
end $$;

-- A Job's pod takes over the attempt that the operator claimed for it; once, since afterwards it belongs to p_worker.
-- Answers as claim does; an empty answer means that the attempt is not there to be taken.
create function sluice.adopt(p_worker uuid, p_track_id uuid, p_attempt int)
returns table (track_id uuid, attempt int, type text, tenant text, workspace text, document_id uuid, payload jsonb,
               timeout_secs int, lease_secs int, failures int)
language plpgsql volatile security definer set search_path = pg_catalog as $$
#variable_conflict use_column
begin
  perform sluice._check_isolation();
  if not exists (select from sluice.workers w where w.worker_id = p_worker) then
    raise exception 'worker % is not registered', p_worker using errcode = 'P0002', hint = 'call register_worker first';
  end if;
  return query
  update sluice.tasks t
     set worker_id = p_worker, claim_sequence = 0, started_at = now(), lease_until = now() + make_interval(secs => p.lease_secs),
         deadline = now() + make_interval(secs => t.timeout_secs)
    from sluice.workers w, sluice.pools p, sluice.tenant_lanes l
   where t.track_id = p_track_id and t.attempt = p_attempt and t.state = 'processing' and t.lease_until > now()
     and w.worker_id = t.worker_id and w.stands_for_pool and p.pool_id = w.pool_id and l.lane_id = t.lane_id
  returning t.track_id, t.attempt, t.type::text, l.tenant, t.workspace, t.document_id, t.payload, t.timeout_secs, p.lease_secs,
            t.failures::int;
end $$;

-- Scale-down marks its victims; a claim reads the row that this writes, so none can slip between. Answers `draining`,
-- or `not_found`.
create function sluice.drain_worker(p_worker uuid) returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
begin
  perform sluice._check_isolation();
  update sluice.workers set draining = true where worker_id = p_worker;
  return case when found then 'draining' else 'not_found' end;
end $$;

create function sluice.undrain_worker(p_worker uuid) returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
begin
  perform sluice._check_isolation();
  update sluice.workers set draining = false where worker_id = p_worker;
  return case when found then 'serving' else 'not_found' end;
end $$;
