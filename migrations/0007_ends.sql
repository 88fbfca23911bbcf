-- Ends: what a worker says of an attempt when it is over. A write without the current attempt changes nothing and says so:
-- `refused` (the task ended), `lost` (another attempt, or nobody's), `not_found`.

set local role sluice_owner;

-- `completed`, or `cancelled` if a cancel was first. Of 512 tasks or of one; the last statement of a transaction that
-- holds the handler's own writes: the commit must follow within 5 s. Any answer but `completed` means: roll back.
create function sluice.complete_many(p_track_ids uuid[], p_attempts int[], p_results jsonb[] default null)
returns table (track_id uuid, attempt int, outcome text)
language plpgsql volatile security definer
set search_path = pg_catalog
as $$
#variable_conflict use_column
declare
  v_ended uuid[];
  v_states text[];
  v_attempts int[];
begin
  perform sluice._check_isolation();
  -- Nobody can take a task whose end is not committed: a session whose network has gone silent must not keep it.
  perform set_config('idle_in_transaction_session_timeout', '5s', true);
  perform sluice._check_batch(p_track_ids, coalesce(p_attempts, '{}'));
  if p_results is not null and cardinality(p_results) <> cardinality(p_track_ids) then
    raise exception '% track ids, but % results', cardinality(p_track_ids), cardinality(p_results)
      using errcode = '2202E', hint = 'send one result (or null) for each track id';
  end if;
  select array_agg(e.track_id), array_agg(e.state), array_agg(e.attempt) into v_ended, v_states, v_attempts
    from sluice._end_tasks(p_track_ids, p_attempts, '{processing,stopping}', 'completed', p_results) e;
  if cardinality(v_ended) = cardinality(p_track_ids) then
    return query select u.track_id, u.attempt, u.state from unnest(v_ended, v_attempts, v_states) u (track_id, attempt, state);
  else
    -- A pair may stand twice: its first line has ended it, the others are refused.
    return query
    select a.track_id, a.attempt, coalesce(e.state, sluice._why_not(a.track_id, a.attempt))
      from (select u.track_id, u.attempt, row_number() over (partition by u.track_id, u.attempt order by u.n) as nth
              from unnest(p_track_ids, p_attempts) with ordinality u (track_id, attempt, n)) a
      left join unnest(v_ended, v_states, v_attempts) e (track_id, state, attempt)
        on e.track_id = a.track_id and e.attempt = a.attempt and a.nth = 1;
  end if;
end $$;

create function sluice.complete(p_track_id uuid, p_attempt int, p_result jsonb default null, p_document jsonb default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_outcome text;
begin
  perform sluice._check_document(p_document);
  select c.outcome into v_outcome from sluice.complete_many(array[p_track_id], array[p_attempt], array[p_result]) c;
  if v_outcome = 'completed' and p_document is not null then
    perform sluice._say_document(p_track_id, p_document);
  end if;
  return v_outcome;
end $$;

-- Completes, and enqueues the follow-on p_next (as for enqueue_many; tenant, workspace and document are this task's), in
-- one transaction. The follow-on belongs to the same tree, document and resource, and has the same priority, unless p_next names one.
create function sluice.complete_with_next(p_track_id uuid, p_attempt int, p_next jsonb, p_result jsonb default null,
                                          p_document jsonb default null)
returns table (outcome text, next_track_id uuid)
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_task record;
  v_next record;
begin
  if jsonb_typeof(p_next) is distinct from 'object' then
    perform sluice._bad_input('the follow-on is not a JSON object', 'send an item as enqueue_many takes it');
  end if;
  perform sluice._check_document(p_document);
  outcome := sluice.complete(p_track_id, p_attempt, p_result);
  if outcome <> 'completed' then
    return next;
    return;
  end if;
  select t.document_id, t.mirror_id, t.workspace, t.priority, coalesce(t.root_id, t.track_id) as root_id, l.tenant into strict v_task
    from sluice.tasks_archive t join sluice.tenant_lanes l on l.lane_id = t.lane_id where t.track_id = p_track_id;
  select e.track_id, e.outcome, e.message into strict v_next
    from sluice.enqueue_many(jsonb_build_array(jsonb_build_object('priority', v_task.priority) || p_next || jsonb_strip_nulls(jsonb_build_object(
           'tenant', v_task.tenant, 'workspace', v_task.workspace, 'document_id', v_task.document_id)))) e;
  if v_next.outcome not in ('created', 'existing') then
    perform sluice._bad_input('the follow-on: ' || v_next.message, 'roll back, and fail the task or correct the follow-on');
  end if;
  next_track_id := v_next.track_id;
  if v_next.outcome = 'created' then
    update sluice.tasks set parent_id = p_track_id, root_id = v_task.root_id, mirror_id = v_task.mirror_id where track_id = next_track_id;
    if v_task.document_id is not null then
      perform sluice._say_document(next_track_id, '{"status": "processing", "stage": "preprocessing"}' || coalesce(nullif(p_document, 'null'), '{}'));
    end if;
  end if;
  return next;
end $$;

-- A handler failed. `retry` (pending again, after the back-off), `failed` (permanent, or the budget is spent), `cancelled`.
-- p_class is one of the closed set of failure classes; three timeouts in a row without progress are a circuit breaker.
create function sluice.fail(p_track_id uuid, p_attempt int, p_class text, p_error text default null, p_document jsonb default null)
returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_task record;
  v_class text := p_class;
  v_timeouts int;
  v_outcome text;
begin
  perform sluice._check_isolation();
  if sluice._is_permanent(p_class) is null or p_class = 'cancelled' then
    perform sluice._bad_input(format('%s is not a failure class that a worker may give', coalesce(quote_literal(left(p_class, 64)), 'null')),
                              'see the list in docs/protocol.md; unknown is one of them');
  end if;
  perform sluice._check_document(p_document);
  select t.state, t.failures, t.max_attempts, t.timeouts, t.progressed, t.lane_id, t.mirror_id into v_task
    from sluice.tasks t where t.track_id = p_track_id and t.attempt = p_attempt and t.leased for no key update;
  if not found then
    return sluice._why_not(p_track_id, p_attempt);
  end if;
  if v_task.state = 'stopping' then
    perform sluice._end_tasks(array[p_track_id], array[p_attempt], '{stopping}', 'cancelled');
    return 'cancelled';
  end if;
  v_timeouts := case when p_class not like 'timeout%' or v_task.progressed then 0 else v_task.timeouts + 1 end;
  if v_timeouts >= 3 then
    v_class := 'circuit_breaker';
  end if;
  v_outcome := case when sluice._is_permanent(v_class) or v_task.failures + 1 >= v_task.max_attempts then 'failed' else 'retry' end;
  perform sluice._event(v_outcome, p_track_id, v_task.lane_id, p_attempt, null, v_class || coalesce(': ' || p_error, ''));
  if v_outcome = 'failed' then
    update sluice.tasks set failures = failures + 1, timeouts = v_timeouts where track_id = p_track_id;
    perform sluice._end_tasks(array[p_track_id], array[p_attempt], '{processing}', 'failed', null, v_class, left(p_error, 4096));
    if p_document is not null then
      perform sluice._say_document(p_track_id, p_document);
    end if;
  else
    update sluice.tasks t
       set state = 'pending', leased = false, lease_until = null, deadline = null, worker_id = null, claim_sequence = null,
           stage = null, progress = null, message = null, ready = false, failures = t.failures + 1, timeouts = v_timeouts,
           failure_class = v_class, error = left(p_error, 4096),
           available_at = now() + make_interval(secs => least(2 ^ least(t.failures, 6), 60) * (1 + 0.25 * random()))
     where t.track_id = p_track_id;
    perform sluice._requeued(array[p_track_id], array[v_task.lane_id], array[v_task.mirror_id]);
  end if;
  return v_outcome;
end $$;

-- A worker has stopped what it was told to: `cancelled`; `refused` if nobody had asked it to.
create function sluice.stopped(p_track_id uuid, p_attempt int) returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
begin
  perform sluice._check_isolation();
  perform from sluice._end_tasks(array[p_track_id], array[p_attempt], '{stopping}', 'cancelled');
  if found then
    return 'cancelled';
  elsif exists (select from sluice.tasks t where t.track_id = p_track_id and t.attempt = p_attempt and t.leased) then
    return 'refused';
  end if;
  return sluice._why_not(p_track_id, p_attempt);
end $$;

-- Gives attempts back: `released` (pending again, not counted), or `cancelled`. p_cool_down: a provider said 429, so the
-- lanes rest for 30, 60, 120, 300 s; longer, up to an hour, if the provider said when to come again.
create function sluice.release(p_track_ids uuid[], p_attempts int[], p_reason text default null, p_cool_down boolean default false,
                               p_retry_after_secs int default null)
returns table (track_id uuid, attempt int, outcome text)
language plpgsql volatile security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
  v_done uuid[];
  v_outcomes text[];
  v_attempts int[];
begin
  perform sluice._check_isolation();
  perform sluice._check_batch(p_track_ids, coalesce(p_attempts, '{}'));
  select array_agg(g.track_id), array_agg(g.outcome), array_agg(g.attempt) into v_done, v_outcomes, v_attempts
    from sluice._give_back(p_track_ids, p_attempts, 'released', p_reason) g;
  if p_cool_down and v_done is not null then
    perform sluice._cool_lanes(array(select distinct t.lane_id from sluice.tasks t where t.track_id = any (v_done)), p_retry_after_secs);
  end if;
  return query
  select a.track_id, a.attempt, coalesce(g.outcome, sluice._why_not(a.track_id, a.attempt))
    from (select u.track_id, u.attempt, row_number() over (partition by u.track_id, u.attempt order by u.n) as nth
            from unnest(p_track_ids, p_attempts) with ordinality u (track_id, attempt, n)) a
    left join unnest(v_done, v_outcomes, v_attempts) g (track_id, outcome, attempt)
      on g.track_id = a.track_id and g.attempt = a.attempt and a.nth = 1;
end $$;
