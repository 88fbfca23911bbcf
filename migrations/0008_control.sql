-- Control: cancel, retry, suspend, resume, priority. Whoever asks, it is one of these.

set local role sluice_owner;

-- Where a task is, and whose. p_tenant and p_workspace, if given, must be the task's, or it is not there for the asker.
create function sluice._find(p_track_id uuid, p_tenant text, p_workspace text)
returns table (state text, root_id uuid, lane_id int)
language sql stable set search_path = pg_catalog as $$
  select t.state::text, t.root_id, t.lane_id
    from (select a.state, coalesce(a.root_id, a.track_id) as root_id, a.lane_id, a.workspace from sluice.tasks a where a.track_id = p_track_id
          union all
          select a.state, coalesce(a.root_id, a.track_id), a.lane_id, a.workspace from sluice.tasks_archive a where a.track_id = p_track_id) t
    join sluice.tenant_lanes l on l.lane_id = t.lane_id
   where (p_tenant is null or l.tenant = p_tenant) and (p_workspace is null or t.workspace = p_workspace)
$$;

-- Cancels live tasks: pending ones end at once, processing ones become stopping and their workers are told. Answers those
-- that it found alive.
create function sluice._cancel(p_track_ids uuid[], p_by text, p_reason text)
returns table (track_id uuid, outcome text)
language plpgsql volatile set search_path = pg_catalog set jit = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  v_locked uuid[] := sluice._lock_tasks(p_track_ids);
  v_pending uuid[];
  v_workers uuid[];
  v_stopping uuid[];
  v_mirrors bigint[];
begin
  with asked as (
    update sluice.tasks t
       set cancel_at = now(), cancel_by = left(p_by, 253), cancel_reason = left(p_reason, 1024),
           state = case t.state when 'processing' then 'stopping' else t.state end
      from unnest(v_locked) u (track_id) where t.track_id = u.track_id and t.state in ('pending', 'processing')
    returning t.track_id, t.state, t.lane_id, t.attempt, t.worker_id, t.mirror_id),
  noted as (
    insert into sluice.task_events (kind, track_id, lane_id, attempt, actor, detail)
    select 'cancel', a.track_id, a.lane_id, a.attempt, left(p_by, 253), left(p_reason, 1024) from asked a)
  select array_agg(a.track_id) filter (where a.state = 'pending'), array_agg(distinct a.worker_id) filter (where a.state = 'stopping'),
         array_agg(a.mirror_id)
    into v_pending, v_workers, v_mirrors from asked a;
  perform pg_notify('sluice_cancel', w::text) from unnest(v_workers) w;
  select array_agg(t.track_id) into v_stopping from unnest(v_locked) u (track_id) join sluice.tasks t on t.track_id = u.track_id
   where t.state = 'stopping';
  perform sluice._dirty(v_mirrors);
  if v_pending is not null then
    return query
      select e.track_id, 'cancelled' from sluice._end_tasks(v_pending, null, '{pending}', 'cancelled', p_message => 'Cancelled before execution') e;
  end if;
  return query select u, 'stopping' from unnest(v_stopping) u;
end $$;

-- What a task that is not alive answers to a cancel.
create function sluice._cancel_answer(p_state text) returns text
language sql immutable parallel safe
return case p_state when 'completed' then 'conflict_completed' when 'failed' then 'already_finished' when 'cancelled' then 'unchanged' end;

-- One task: `cancelled`, `stopping`, `unchanged` (it was cancelled), `conflict_completed`, `already_finished`, `not_found`.
create function sluice.cancel(p_track_id uuid, p_by text default null, p_reason text default null, p_tenant text default null,
                              p_workspace text default null)
returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_task record;
  v_outcome text;
begin
  perform sluice._check_isolation();
  loop
    select f.state into v_task from sluice._find(p_track_id, p_tenant, p_workspace) f;
    if not found then
      return 'not_found';
    elsif v_task.state not in ('pending', 'processing', 'stopping') then
      return sluice._cancel_answer(v_task.state);
    end if;
    select c.outcome into v_outcome from sluice._cancel(array[p_track_id], p_by, p_reason) c;
    if found then
      return v_outcome;
    end if;  -- it ended between the look and the touch: look again
  end loop;
end $$;

-- The task and all of its tree: a convert and the insert that follows it, whichever of them is named. One row a task that
-- was alive; if none was, one row for the task that was named.
create function sluice.cancel_linked(p_track_id uuid, p_by text default null, p_reason text default null, p_tenant text default null,
                                     p_workspace text default null)
returns table (track_id uuid, outcome text)
language plpgsql volatile security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
  v_task record;
  v_ids uuid[];
  v_done uuid[] := '{}';
begin
  perform sluice._check_isolation();
  loop
    select f.state, f.root_id into v_task from sluice._find(p_track_id, p_tenant, p_workspace) f;
    if not found then
      return query select p_track_id, 'not_found';
      return;
    end if;
    -- A follow-on may have come while we waited for the one that it follows.
    select array_agg(t.track_id) into v_ids
      from (select t.track_id from sluice.tasks t where t.root_id = v_task.root_id
            union select t.track_id from sluice.tasks t where t.track_id = v_task.root_id) t
     where not t.track_id = any (v_done);
    if v_ids is null then
      exit when v_task.state not in ('pending', 'processing', 'stopping') or v_done <> '{}';
    else
      for track_id, outcome in select c.track_id, c.outcome from sluice._cancel(v_ids, p_by, p_reason) c loop
        v_done := v_done || track_id;
        return next;
      end loop;
    end if;
  end loop;
  if v_done = '{}' then
    return query select p_track_id, sluice._cancel_answer(v_task.state);
  end if;
end $$;

-- All that is active (pending too) of a filter: {"tenant", "workspace", "class", "type", "pool"}, at most p_limit; call it until
-- it answers none.
create function sluice.cancel_active(p_filter jsonb, p_by text default null, p_reason text default null, p_limit int default 1000)
returns table (track_id uuid, outcome text)
language plpgsql volatile security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
  v_ids uuid[];
begin
  perform sluice._check_isolation();
  if jsonb_typeof(p_filter) is distinct from 'object' or p_filter - array['tenant', 'workspace', 'class', 'type', 'pool'] <> '{}' then
    perform sluice._bad_input('the filter is not an object of tenant, workspace, class, type and pool', 'leave out what is not to be filtered');
  elsif p_filter ->> 'class' <> all (enum_range(null::sluice.lane_class)::text[])
     or p_filter ->> 'type' <> all (enum_range(null::sluice.task_type)::text[]) then
    perform sluice._bad_input('the class or the type of the filter is not known', 'see docs/protocol.md for their names');
  elsif p_limit is null or p_limit not between 1 and 1000 then
    perform sluice._bad_input(format('a limit of %s', p_limit), 'send one from 1 to 1000');
  end if;
  select array_agg(s.track_id) into v_ids from (
    select t.track_id from sluice.tasks t join sluice.tenant_lanes l on l.lane_id = t.lane_id join sluice.pools p on p.pool_id = l.pool_id
     where t.state in ('pending', 'processing')
       and (p_filter ->> 'tenant' is null or l.tenant = p_filter ->> 'tenant')
       and (p_filter ->> 'workspace' is null or t.workspace = p_filter ->> 'workspace')
       and (p_filter ->> 'class' is null or l.class::text = p_filter ->> 'class')
       and (p_filter ->> 'type' is null or t.type::text = p_filter ->> 'type')
       and (p_filter ->> 'pool' is null or p.pool = p_filter ->> 'pool')
     limit p_limit) s;
  return query select c.track_id, c.outcome from sluice._cancel(v_ids, p_by, p_reason) c;
end $$;

-- By hand, at most three times a task: `pending` and the task that runs again (of a root, its failed or cancelled descendant
-- if it has one); `active`, `completed`, `max_retries_exceeded`, `conflict_active` (its exclusive key), `not_found`.
create function sluice.retry(p_track_id uuid, p_by text default null, p_tenant text default null, p_workspace text default null)
returns table (outcome text, track_id uuid)
language plpgsql volatile security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
  v_named record;
  v_task record;
  v_mirror bigint;
begin
  perform sluice._check_isolation();
  select f.state, f.root_id into v_named from sluice._find(p_track_id, p_tenant, p_workspace) f;
  if not found then
    return query select 'not_found', p_track_id;
    return;
  end if;
  select a.track_id into v_task
    from sluice.tasks_archive a
   where a.state in ('failed', 'cancelled') and (a.track_id = p_track_id or v_named.root_id = p_track_id and a.root_id = p_track_id)
   order by a.id desc limit 1;
  if found then
    select a.track_id, a.lane_id, a.attempt, a.retries, a.state into v_task
      from sluice.tasks_archive a where a.track_id = v_task.track_id for update;
  end if;
  if not found then
    -- The tree is active as long as one of its tasks is. What is in neither table by now was let go by the retention.
    return query
    select case when exists (select from sluice.tasks t where t.root_id = v_named.root_id or t.track_id = v_named.root_id) then 'active'
                else coalesce((select case a.state when 'completed' then 'completed' else 'active' end
                                 from sluice.tasks_archive a where a.track_id = p_track_id), 'not_found') end, p_track_id;
    return;
  elsif exists (select from sluice.tasks t where t.root_id = v_named.root_id or t.track_id = v_named.root_id) then
    return query select 'active', p_track_id;
    return;
  elsif v_task.retries >= 3 then
    return query select 'max_retries_exceeded', v_task.track_id;
    return;
  end if;

  perform sluice._share_lanes(array[v_task.lane_id]);
  -- It starts clean: signals of earlier attempts are history. The attempt goes on counting, since it is the token.
  insert into sluice.tasks (track_id, id, lane_id, type, priority, max_attempts, retries, attempt, timeout_secs, created_at, workspace,
                            document_id, parent_id, root_id, mirror_id, exclusive_hash, cost, tokens, payload)
  select a.track_id, nextval('sluice.task_ids'), a.lane_id, a.type, a.priority, a.max_attempts, a.retries + 1, a.attempt, a.timeout_secs,
         a.created_at, a.workspace, a.document_id, a.parent_id, a.root_id, a.mirror_id, a.exclusive_hash, a.cost, a.tokens, a.payload
    from sluice.tasks_archive a where a.track_id = v_task.track_id
  on conflict (exclusive_hash) where exclusive_hash is not null do nothing
  returning mirror_id into v_mirror;
  if not found then
    return query select 'conflict_active', v_task.track_id;
    return;
  end if;
  delete from sluice.tasks_archive a where a.track_id = v_task.track_id;
  update sluice.documents d set task_id = v_task.track_id
    from sluice.tasks t where t.track_id = v_task.track_id and d.document_id = t.document_id;
  perform sluice._event('retried', v_task.track_id, v_task.lane_id, v_task.attempt, p_by, v_task.state::text);
  perform sluice._requeue_documents(array[v_task.track_id]);
  perform sluice._wake_lanes(array[v_task.lane_id], false, true);
  perform sluice._dirty(array[v_mirror]);
  return query select 'pending', v_task.track_id;
end $$;

-- A pending task, locked against the claim.
create function sluice._lock_pending(p_track_id uuid, p_tenant text, p_workspace text) returns setof sluice.tasks
language sql volatile set search_path = pg_catalog as $$
  select t from sluice.tasks t join sluice.tenant_lanes l on l.lane_id = t.lane_id
   where t.track_id = p_track_id and t.state = 'pending' and (p_tenant is null or l.tenant = p_tenant)
     and (p_workspace is null or t.workspace = p_workspace)
     for no key update of t
$$;

-- What suspend, resume and set_priority answer of a task that is not pending.
create function sluice._not_pending(p_track_id uuid, p_tenant text, p_workspace text) returns text
language sql stable set search_path = pg_catalog as $$
  select case when exists (select from sluice._find(p_track_id, p_tenant, p_workspace)) then 'refused' else 'not_found' end
$$;

-- Pending work waits until it is resumed: `suspended`, `unchanged`; `refused` of a task that is not pending; `not_found`.
create function sluice.suspend(p_track_id uuid, p_by text default null, p_tenant text default null, p_workspace text default null)
returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_task record;
begin
  perform sluice._check_isolation();
  select t.suspended, t.lane_id, t.mirror_id, t.attempt into v_task from sluice._lock_pending(p_track_id, p_tenant, p_workspace) t;
  if not found then
    return sluice._not_pending(p_track_id, p_tenant, p_workspace);
  elsif v_task.suspended then
    return 'unchanged';
  end if;
  update sluice.tasks set suspended = true, ready = false where track_id = p_track_id;
  perform sluice._event('suspended', p_track_id, v_task.lane_id, v_task.attempt, p_by, null);
  perform sluice._dirty(array[v_task.mirror_id]);
  return 'suspended';
end $$;

create function sluice.resume(p_track_id uuid, p_by text default null, p_tenant text default null, p_workspace text default null)
returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_task record;
begin
  perform sluice._check_isolation();
  select t.suspended, t.lane_id, t.mirror_id, t.attempt into v_task from sluice._lock_pending(p_track_id, p_tenant, p_workspace) t;
  if not found then
    return sluice._not_pending(p_track_id, p_tenant, p_workspace);
  elsif not v_task.suspended then
    return 'unchanged';
  end if;
  update sluice.tasks set suspended = false, ready = available_at <= now() where track_id = p_track_id;
  perform sluice._event('resumed', p_track_id, v_task.lane_id, v_task.attempt, p_by, null);
  perform sluice._share_lanes(array[v_task.lane_id]);
  perform sluice._wake_lanes(array[v_task.lane_id], false, true);
  perform sluice._dirty(array[v_task.mirror_id]);
  return 'resumed';
end $$;

-- Higher goes first in its lane: `changed`, `unchanged`, `refused`, `not_found`.
create function sluice.set_priority(p_track_id uuid, p_priority int, p_tenant text default null, p_workspace text default null)
returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_was int;
begin
  perform sluice._check_isolation();
  if p_priority is null or p_priority not between -1000 and 1000 then
    perform sluice._bad_input(format('a priority of %s', p_priority), 'send a whole number from -1000 to 1000');
  end if;
  select t.priority into v_was from sluice._lock_pending(p_track_id, p_tenant, p_workspace) t;
  if not found then
    return sluice._not_pending(p_track_id, p_tenant, p_workspace);
  end if;
  update sluice.tasks set priority = p_priority where track_id = p_track_id and priority <> p_priority;
  return case when v_was = p_priority then 'unchanged' else 'changed' end;
end $$;
