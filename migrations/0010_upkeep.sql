-- Upkeep: what every worker does a little of, each time, and safe in parallel. The operator does it too.

set local role sluice_owner;

-- Attempts whose worker is gone (the lease ran out) or that are over their deadline by a lease: stopping ones end as
-- cancelled, the others go back to pending, or fail (`worker_lost` after five, `interrupted` where a pool does not resume by
-- itself, a timeout's class). At most p_limit; answers what became of them.
create function sluice.reap(p_limit int default 1000)
returns table (track_id uuid, outcome text)
language plpgsql volatile security definer
set search_path = pg_catalog set jit = off set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_late uuid[];
  v_locked uuid[];
  v_task record;
begin
  perform sluice._check_isolation();
  -- First what runs, which is little; a plan that looks for it in the order of the keys reads all that is pending.
  v_late := array(select t.track_id from sluice.tasks t where t.leased and (t.lease_until < now() or t.deadline < now()));
  if v_late = '{}' then
    return;
  end if;
  v_locked := array(
    select t.track_id
      from unnest(v_late) a (track_id)
      join sluice.tasks t on t.track_id = a.track_id
      join sluice.tenant_lanes l on l.lane_id = t.lane_id
      join sluice.pools p on p.pool_id = l.pool_id
     where t.leased and (t.lease_until < now() or t.deadline < now() - make_interval(secs => p.lease_secs))
     order by t.track_id limit least(greatest(p_limit, 1), 1000) for no key update of t skip locked);
  perform sluice._lock_documents(v_locked);
  for v_task in
    select t.track_id, t.attempt, t.state, t.lost_leases, t.type, t.lane_id, t.lease_until < now() as is_lost,
           p.auto_resume, coalesce(w.stands_for_pool, false) as stands_for_pool
      from unnest(v_locked) a (track_id)
      join sluice.tasks t on t.track_id = a.track_id
      join sluice.tenant_lanes l on l.lane_id = t.lane_id
      join sluice.pools p on p.pool_id = l.pool_id
      left join sluice.workers w on w.worker_id = t.worker_id
  loop
    track_id := v_task.track_id;
    if v_task.state = 'stopping' then
      perform sluice._end_tasks(array[v_task.track_id], array[v_task.attempt], '{stopping}', 'cancelled');
      outcome := 'cancelled';
    elsif not v_task.is_lost then
      outcome := sluice.fail(v_task.track_id, v_task.attempt,
                             case when v_task.type = 'pdf_processing' then 'timeout_phase_convert' else 'timeout_phase_extract' end,
                             'the deadline passed and the worker went on');
    elsif v_task.stands_for_pool then
      select g.outcome into outcome
        from sluice._give_back(array[v_task.track_id], array[v_task.attempt], 'released', 'its Job did not start in time') g;
    elsif not v_task.auto_resume or v_task.lost_leases >= 4 then
      outcome := 'failed';
      update sluice.tasks t set lost_leases = t.lost_leases + 1 where t.track_id = v_task.track_id;
      perform sluice._event('lost', v_task.track_id, v_task.lane_id, v_task.attempt, null, 'failed');
      if v_task.auto_resume then
        perform sluice._end_tasks(array[v_task.track_id], array[v_task.attempt], '{processing}', 'failed', null, 'worker_lost',
                                  'five workers were lost with this task');
      else
        perform sluice._end_tasks(array[v_task.track_id], array[v_task.attempt], '{processing}', 'failed', null, 'interrupted',
                                  'Interrupted — use Reprocess');
      end if;
    else
      outcome := 'lost';
      update sluice.tasks t set lost_leases = t.lost_leases + 1 where t.track_id = v_task.track_id;
      perform from sluice._give_back(array[v_task.track_id], array[v_task.attempt], 'lost', 'its lease ran out');
    end if;
    return next;
  end loop;
end $$;

-- Makes ready what is due, lets rested lanes go on, and reads the wakes that no claim has read. Answers how many tasks.
create function sluice.promote(p_limit int default 1000) returns int
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_lanes int[];
  v_mirrors bigint[];
  v_count int;
begin
  perform sluice._check_isolation();
  with due as (
    select t.track_id from sluice.tasks t
     where t.state = 'pending' and not t.ready and not t.suspended and t.available_at <= now()
     order by t.available_at limit least(greatest(p_limit, 1), 1000) for no key update skip locked),
  made as (
    update sluice.tasks t set ready = true from due d where t.track_id = d.track_id returning t.lane_id, t.mirror_id)
  select array_agg(distinct m.lane_id), array_agg(m.mirror_id), count(*) into v_lanes, v_mirrors, v_count from made m;
  if v_count > 0 then
    perform sluice._share_lanes(v_lanes);
    perform sluice._wake_lanes(v_lanes, false, true);
    perform sluice._dirty(v_mirrors);
  end if;
  perform sluice._apply_lane(l.lane_id, false) from (
    select l.lane_id from sluice.tenant_lanes l join sluice.lane_turns t on t.lane_id = l.lane_id
     where l.cooled_until <= now() and l.policy = 'none' and t.is_held order by l.lane_id for no key update of l skip locked) l;
  if exists (select from sluice.lane_wakes) then
    perform sluice._fold_wakes(0);
  end if;
  return v_count;
end $$;

create function sluice._columns(p_table text) returns text
language sql stable set search_path = pg_catalog as $$
  select string_agg(quote_ident(a.attname), ', ' order by a.attnum) from pg_attribute a
   where a.attrelid = ('sluice.' || quote_ident(p_table))::regclass and a.attnum > 0 and not a.attisdropped
$$;

-- Makes partitions ahead (a week each of the archive, a month each of the history), and lets go what is older than its
-- retention. A partition goes only when the newest end in it is past; rows of the default partitions are deleted in batches.
-- Answers what it did, a row each thing.
create function sluice.retain(p_archive_days int default 30, p_history_days int default 90, p_key_days int default 30, p_batch int default 10000)
returns table (what text, rows bigint)
language plpgsql volatile security definer
-- Weeks and months are UTC's, whoever calls: edges of two time zones would overlap.
set search_path = pg_catalog set lock_timeout = '200ms' set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
  v_part record;
  v_from timestamptz;
  v_has boolean;
begin
  perform sluice._check_isolation();
  if least(p_archive_days, p_history_days, p_key_days, p_batch) < 1 or num_nulls(p_archive_days, p_history_days, p_key_days, p_batch) > 0 then
    perform sluice._bad_input('a retention is under one day', 'send days of 1 or more');
  end if;
  -- One at a time is enough: it is nobody's hot path.
  if not pg_try_advisory_xact_lock(1936487542, 1) then
    return;
  end if;

  for v_part in
    select 'tasks_archive' as parent, 'w' as unit, to_char(w, 'IYYY_IW') as name, w as starts, w + interval '7 days' as ends
      from generate_series(date_trunc('week', now()), date_trunc('week', now()) + interval '14 days', interval '7 days') w
    union all
    select 'task_events', 'm', to_char(m, 'YYYY_MM'), m, m + interval '1 month'
      from generate_series(date_trunc('month', now()), date_trunc('month', now()) + interval '1 month', interval '1 month') m
  loop
    continue when to_regclass(format('sluice.%I', v_part.parent || '_' || v_part.unit || v_part.name)) is not null;
    begin
      -- Rows of its range that are in the default partition come along; one that comes meanwhile makes this fail, until
      -- the next time.
      execute format('create table sluice.%I (like sluice.%I including all)', v_part.parent || '_' || v_part.unit || v_part.name, v_part.parent);
      if v_part.parent = 'tasks_archive' then
        execute format('with gone as (delete from sluice.tasks_archive_default where track_id >= %1$L and track_id < %2$L returning %3$s) '
                       'insert into sluice.%4$I (%3$s) select %3$s from gone',
                       sluice._uuid_at(v_part.starts), sluice._uuid_at(v_part.ends), sluice._columns('tasks_archive'),
                       v_part.parent || '_' || v_part.unit || v_part.name);
        execute format('alter table sluice.tasks_archive attach partition sluice.%I for values from (%L) to (%L)',
                       v_part.parent || '_' || v_part.unit || v_part.name, sluice._uuid_at(v_part.starts), sluice._uuid_at(v_part.ends));
      else
        execute format('with gone as (delete from sluice.task_events_default where at >= %1$L and at < %2$L returning %3$s) '
                       'insert into sluice.%4$I (%3$s) select %3$s from gone',
                       v_part.starts, v_part.ends, sluice._columns('task_events'), v_part.parent || '_' || v_part.unit || v_part.name);
        execute format('alter table sluice.task_events attach partition sluice.%I for values from (%L) to (%L)',
                       v_part.parent || '_' || v_part.unit || v_part.name, v_part.starts, v_part.ends);
      end if;
      return query select 'made ' || v_part.parent || '_' || v_part.unit || v_part.name, 0::bigint;
    exception when lock_not_available or check_violation then
      return query select 'not yet made ' || v_part.parent || '_' || v_part.unit || v_part.name, 0::bigint;
    end;
  end loop;

  for v_part in
    select c.relname as name, p.relname as parent from pg_inherits i
      join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
     where p.oid in ('sluice.tasks_archive'::regclass, 'sluice.task_events'::regclass) and c.relname !~ '_default$'
     order by c.relname
  loop
    -- The week or month of its name, and the retention after it, must be over; then what is in it is looked at.
    v_from := case when v_part.parent = 'tasks_archive' then to_timestamp(right(v_part.name, 7), 'IYYY_IW') + interval '7 days'
                   else to_timestamp(right(v_part.name, 7), 'YYYY_MM') + interval '1 month' end;
    if v_part.parent = 'tasks_archive' then
      continue when v_from > now() - make_interval(days => p_archive_days);
      execute format('select exists (select from sluice.%I where finished_at > now() - make_interval(days => $1))', v_part.name)
        into v_has using p_archive_days;
    else
      continue when v_from > now() - make_interval(days => p_history_days);
      v_has := false;
    end if;
    if not v_has then
      begin
        execute format('drop table sluice.%I', v_part.name);
        return query select 'dropped ' || v_part.name, 0::bigint;
      exception when lock_not_available then
        return query select 'busy ' || v_part.name, 0::bigint;
      end;
    end if;
  end loop;

  return query
  with old as materialized (
    select t.ctid as place from sluice.tasks_archive_default t where t.finished_at < now() - make_interval(days => p_archive_days)
     limit p_batch for update skip locked),  -- a retry may hold one
  gone as (delete from sluice.tasks_archive_default t using old where t.ctid = old.place returning 1)
  select 'archive rows', count(*) from gone having count(*) > 0;
  return query
  with old as (select t.ctid as place from sluice.task_events_default t where t.at < now() - make_interval(days => p_history_days) limit p_batch),
  gone as (delete from sluice.task_events_default t using old where t.ctid = old.place returning 1)
  select 'history rows', count(*) from gone having count(*) > 0;
  return query
  with old as (select k.scope, k.kind, k.key from sluice.task_keys k
                where k.kind = 'idempotency' and k.created_at < now() - make_interval(days => p_key_days)
                  and not exists (select from sluice.tasks t where t.track_id = k.track_id)
                order by k.created_at limit p_batch for update skip locked),
  gone as (delete from sluice.task_keys k using old where (k.scope, k.kind, k.key) = (old.scope, old.kind, old.key) returning 1)
  select 'keys', count(*) from gone having count(*) > 0;
  return query
  with old as materialized (
    select w.worker_id from sluice.workers w
     where w.alive_until < now() - interval '1 day' and not exists (select from sluice.tasks t where t.leased and t.worker_id = w.worker_id)
       for update skip locked),
  gone as (delete from sluice.workers w using old where w.worker_id = old.worker_id returning 1)
  select 'workers', count(*) from gone having count(*) > 0;
end $$;

-- Lanes whose mark is wrong, and no wake is on its way to them: mends them and answers how many. It is 0, always; a
-- metric watches that.
create function sluice.settle() returns int
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_suspects int[];
  v_mine int[];
  v_wrong int;
begin
  perform sluice._check_isolation();
  -- Only what looks wrong is locked: the keys of all marked lanes would fill the server's lock table.
  v_suspects := array(
    select l.lane_id from sluice.lane_turns l
     where (l.is_full and l.cap > (select count(*) from sluice.tasks r where r.lane_id = l.lane_id and r.leased)
            or l.is_empty and exists (select from sluice.tasks t where t.lane_id = l.lane_id and t.state = 'pending' and t.ready))
       and not exists (select from sluice.lane_wakes w where w.lane_id = l.lane_id)
     order by l.lane_id limit 256);
  if v_suspects = '{}' then
    return 0;
  end if;
  select array_agg(s.lane_id) into v_mine
    from (select l.lane_id from sluice.lane_turns l where l.lane_id = any (v_suspects) order by l.lane_id for no key update skip locked) s
   where pg_try_advisory_xact_lock(1936487541, s.lane_id);
  with wrong as (
    select l.lane_id from sluice.lane_turns l
     where l.lane_id = any (v_mine)
       and (l.is_full and l.cap > (select count(*) from sluice.tasks r where r.lane_id = l.lane_id and r.leased)
            or l.is_empty and exists (select from sluice.tasks t where t.lane_id = l.lane_id and t.state = 'pending' and t.ready))
       and not exists (select from sluice.lane_wakes w where w.lane_id = l.lane_id))
  update sluice.lane_turns l set is_full = false, is_empty = false, vtime = greatest(l.vtime, sluice._turn_floor(l.pool_id))
    from wrong w where l.lane_id = w.lane_id;
  get diagnostics v_wrong = row_count;
  return v_wrong;
end $$;
