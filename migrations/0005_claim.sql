-- The claim: exact caps, fair turns, O(log n). Why it is as it is: ARCHITECTURE.md, "The claim". Its tests: tests/store.

set local role sluice_owner;

-- Takes the marks of woken lanes away. A lane that another claimer has locked keeps its wake for the next claim. Answers
-- whether it locked any: they may be of any pool, so whoever has them must not wait for another lane.
create function sluice._fold_wakes(p_floor bigint) returns boolean
language plpgsql volatile set search_path = pg_catalog as $$
declare
  v_lanes int[];
  v_idle int[];
begin
  select array_agg(s.lane_id) into v_lanes
    from (select l.lane_id from sluice.lane_turns l
           where l.lane_id in (select w.lane_id from sluice.lane_wakes w where w.wake_id >= p_floor order by w.wake_id limit 256)
             for no key update skip locked) s;
  if v_lanes is null then
    return false;
  end if;
  delete from sluice.lane_wakes where lane_id = any (v_lanes);
  -- Where nothing ran and nothing was ready, a new count of what completes begins. Nothing starts there meanwhile.
  v_idle := array(select l.lane_id from sluice.lane_turns l
                   where l.lane_id = any (v_lanes) and l.is_empty and l.served > l.idle_served
                     and not exists (select from sluice.tasks r where r.lane_id = l.lane_id and r.leased and r.claim_number >= l.oldest));
  if v_idle <> '{}' then
    delete from sluice.lane_misses where lane_id = any (v_idle);
  end if;
  update sluice.lane_turns l
     set is_full = false, is_empty = false, vtime = greatest(l.vtime, f.vtime),
         idle_served = case when l.lane_id = any (v_idle) then l.served else l.idle_served end
    from (select p.pool_id, sluice._turn_floor(p.pool_id) as vtime from sluice.pools p offset 0) f
   where l.lane_id = any (v_lanes) and f.pool_id = l.pool_id;
  return true;
end $$;

-- Marks lanes that gave nothing as full or empty, if nobody is freeing or filling them; the others move on by p_charge
-- of a turn, so that one open producer cannot stall a pool. The caller has them locked; p_places are their rows.
create function sluice._mark_lanes(p_lanes int[], p_places tid[], p_charge bigint) returns void
language plpgsql volatile set search_path = pg_catalog as $$
declare
  v_mine int[];
begin
  v_mine := array(select l from unnest(p_lanes) l where pg_try_advisory_xact_lock(1936487541, l));  -- never null
  -- A new statement: what was freed or filled before we had the keys is counted.
  with seen as (
    select l.ctid as place, l.lane_id = any (v_mine) as is_mine, l.cap, l.lane_id,
           l.cap <= (select count(*) from sluice.tasks r where r.lane_id = l.lane_id and r.leased and r.claim_number >= l.oldest) as is_full,
           not exists (select from sluice.tasks t where t.lane_id = l.lane_id and t.state = 'pending' and t.ready) as is_empty
      from unnest(p_places) u (place) join sluice.lane_turns l on l.ctid = u.place)
  update sluice.lane_turns l
     set is_full = s.is_mine and s.is_full, is_empty = s.is_mine and s.is_empty,
         vtime = l.vtime + case when s.is_mine and (s.is_full or s.is_empty) then 0 else p_charge / l.weight end
    from seen s where l.ctid = s.place;
end $$;

-- Up to p_want new attempts for a worker, at most p_quantum a lane while other lanes have work. p_sequence grows with
-- each claim of the worker; `heartbeat` uses it to find claims whose reply never came. An empty answer means that nothing
-- is claimable now, or that the worker is draining, or that the pool is held.
-- Without `jit = off`, the price of a plan that is switched off (1e10) makes the server compile each call: 100 ms, not 1.
--
-- Lanes stay locked until the commit is on disk. With p_flushed false they do not: the caller then calls `flush` before it
-- works on what it got, so that claims of one lane wait for the disk beside each other and not one after the other.
create function sluice.claim(p_worker uuid, p_sequence bigint, p_want int, p_quantum int default 1, p_flushed boolean default true)
returns table (track_id uuid, attempt int, type text, tenant text, workspace text, document_id uuid, payload jsonb,
               timeout_secs int, lease_secs int, failures int)
language plpgsql volatile security definer
set search_path = pg_catalog set plan_cache_mode = force_generic_plan set jit = off set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  c_scale constant bigint := 1000000;  -- what one task of weight 1 costs, in vtime
  c_rounds constant int := 4;
  v_pool record;
  v_take int;
  v_left int := p_want;
  v_got int;
  v_lanes int[];
  v_places tid[];
  v_vtimes bigint[];
  v_caps int[];
  v_served bigint[];
  v_oldest bigint[];
  v_after bigint;
  v_after_lane int := -1;
  v_folded boolean := false;
  v_idle int[];
  v_idle_places tid[];
begin
  perform sluice._check_isolation();
  -- Its locks on lanes must not outlive a session whose network has gone silent.
  perform set_config('idle_in_transaction_session_timeout', '5s', true);
  if p_want is null or p_quantum is null or p_sequence is null or p_want not between 1 and 1000 or p_quantum not between 1 and 1000 then
    perform sluice._bad_input(format('claim of %s with a quantum of %s', p_want, p_quantum), 'both must be from 1 to 1000');
  end if;
  if not coalesce(p_flushed, true) then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  select w.pool_id, w.draining, p.held, p.lease_secs, p.scan_floor, p.scan_floor_at, p.wake_floor, p.full_scan_at
    into v_pool
    from sluice.workers w join sluice.pools p on p.pool_id = w.pool_id
   where w.worker_id = p_worker for share of w;  -- against drain_worker
  if not found then
    raise exception 'worker % is not registered', p_worker using errcode = 'P0002', hint = 'call register_worker first';
  end if;
  if v_pool.draining or v_pool.held then
    return;
  end if;

  -- The floors keep a claim from reading dead entries that a long transaction keeps alive. Once a second one claim reads
  -- without them, sets them anew, and so finds what slipped below. No claim waits for the pool's row.
  if v_pool.full_scan_at < now() - interval '1 s' then
    update sluice.pools p
       set full_scan_at = now(),
           vfloor = greatest(p.vfloor, f.vtime),
           scan_floor = least(p.scan_floor, f.vtime - 1),
           -- One step behind the newest number: a transaction that has one, and is not through, is not seen here.
           wake_floor = least(p.wake_next, (select min(w.wake_id) from sluice.lane_wakes w)),
           wake_next = (select q.last_value from sluice.lane_wakes_wake_id_seq q)
      from (select (select l.vtime from sluice.lane_turns l
                     where l.pool_id = v_pool.pool_id and not l.is_full and not l.is_empty and not l.is_held
                     order by l.vtime, l.lane_id limit 1) as vtime) f
     where p.pool_id = (select q.pool_id from sluice.pools q where q.pool_id = v_pool.pool_id and q.full_scan_at = v_pool.full_scan_at
                           for no key update skip locked);
    if found then
      v_pool.scan_floor := -1;
      v_pool.wake_floor := 0;
    end if;
  elsif v_pool.scan_floor_at < now() - interval '100 ms' then
    -- One step behind the lowest turn, so that a lane woken meanwhile does not come in below it.
    update sluice.pools p
       set scan_floor_at = now(), scan_floor = p.scan_next,
           scan_next = coalesce((select l.vtime - 1 from sluice.lane_turns l
                                  where l.pool_id = v_pool.pool_id and not l.is_full and not l.is_empty and not l.is_held
                                    and l.vtime > v_pool.scan_floor
                                  order by l.vtime, l.lane_id limit 1), p.scan_next)
     where p.pool_id = (select q.pool_id from sluice.pools q where q.pool_id = v_pool.pool_id and q.scan_floor_at = v_pool.scan_floor_at
                           for no key update skip locked);
  end if;
  if exists (select from sluice.lane_wakes w where w.wake_id >= v_pool.wake_floor) then
    v_folded := sluice._fold_wakes(v_pool.wake_floor);
  end if;

  v_after := v_pool.scan_floor;
  for v_round in 1 .. c_rounds loop
    select array_agg(s.lane_id), array_agg(s.place), array_agg(s.vtime), array_agg(s.cap), array_agg(s.served), array_agg(s.oldest)
      into v_lanes, v_places, v_vtimes, v_caps, v_served, v_oldest from (
      select l.lane_id, l.ctid as place, l.vtime, l.cap, l.served, l.oldest from sluice.lane_turns l
       where l.pool_id = v_pool.pool_id and not l.is_full and not l.is_empty and not l.is_held
         and (l.vtime, l.lane_id) > (v_after, v_after_lane)
       order by l.vtime, l.lane_id
       limit least(256, greatest((v_left + p_quantum - 1) / p_quantum, case v_round when 1 then 1 else 4 ^ v_round end::int))
         for no key update skip locked) s;
    if v_lanes is null and v_round = 1 and not v_folded then
      -- All taken: wait for one of the first few, not all for the same one.
      select array_agg(s.lane_id), array_agg(s.place), array_agg(s.vtime), array_agg(s.cap), array_agg(s.served), array_agg(s.oldest)
      into v_lanes, v_places, v_vtimes, v_caps, v_served, v_oldest from (
        select l.lane_id, l.ctid as place, l.vtime, l.cap, l.served, l.oldest from sluice.lane_turns l
         where not l.is_full and not l.is_empty and not l.is_held and l.lane_id = (
           select x.lane_id from (
             select y.lane_id from sluice.lane_turns y
              where y.pool_id = v_pool.pool_id and not y.is_full and not y.is_empty and not y.is_held
                and y.vtime > v_pool.scan_floor
              order by y.vtime, y.lane_id limit 16) x
            order by random() limit 1)
         for no key update) s;
    end if;
    exit when v_lanes is null;
    v_after := v_vtimes[cardinality(v_vtimes)];
    v_after_lane := v_lanes[cardinality(v_lanes)];
    v_take := greatest(p_quantum, (v_left + cardinality(v_lanes) - 1) / cardinality(v_lanes));

    -- A new statement: its snapshot is younger than the locks, so the count is exact. Lanes are found by their place, since
    -- their key's index collects a dead entry with every turn.
    return query
    with lane as materialized (
      select u.lane_id, u.place, u.nth, n.tenant, u.served, coalesce(r.oldest, u.served + 1) as oldest,
             least(v_take, u.cap - r.running)::int as free
        from unnest(v_lanes, v_places, v_caps, v_served, v_oldest) with ordinality u (lane_id, place, cap, served, oldest, nth)
        join sluice.tenant_lanes n on n.lane_id = u.lane_id
       cross join lateral (select count(*) as running, min(t.claim_number) as oldest from sluice.tasks t
                            where t.lane_id = u.lane_id and t.leased and t.claim_number >= u.oldest) r),
    head as materialized (
      select h.place, lane.tenant, lane.place as turn, lane.oldest, lane.served + h.nth as claim_number
        from lane cross join lateral (
          select f.place, row_number() over () as nth from (  -- of no partition: that would be sorted, and the order lost
            select t.ctid as place from sluice.tasks t
             where t.lane_id = lane.lane_id and t.state = 'pending' and t.ready
             order by t.priority desc, t.id limit greatest(lane.free, 0) for no key update skip locked) f) h
       order by h.nth, lane.nth limit v_left),  -- the first of each lane, then the second ones
    claimed as (
      update sluice.tasks t
         set state = 'processing', leased = true, attempt = t.attempt + 1, worker_id = p_worker, claim_sequence = p_sequence,
             claim_number = head.claim_number, started_at = now(), lease_until = now() + make_interval(secs => v_pool.lease_secs),
             deadline = now() + make_interval(secs => t.timeout_secs), progressed = false
        from head where t.ctid = head.place
      returning t.track_id, t.attempt, t.type, head.tenant, t.workspace, t.document_id, t.payload, t.timeout_secs, t.failures,
                head.turn, head.oldest, t.claim_number, t.mirror_id),
    shown as (insert into sluice.mirror_dirty (mirror_id) select c.mirror_id from claimed c where c.mirror_id is not null),
    served as (select c.turn, c.oldest, count(*) as n, max(c.claim_number) as last from claimed c group by c.turn, c.oldest),
    turn as (
      update sluice.lane_turns l set vtime = l.vtime + s.n * c_scale / l.weight, served = s.last, oldest = s.oldest
        from served s where l.ctid = s.turn)
    select c.track_id, c.attempt, c.type::text, c.tenant, c.workspace, c.document_id, c.payload, c.timeout_secs,
           v_pool.lease_secs, c.failures::int
      from claimed c;
    get diagnostics v_got = row_count;
    v_left := v_left - v_got;
    exit when v_left <= 0;

    -- Short: lanes whose row is still where it was gave nothing. On to the lanes after them.
    select array_agg(l.lane_id), array_agg(l.ctid) into v_idle, v_idle_places
      from unnest(v_places) u (place) join sluice.lane_turns l on l.ctid = u.place;
    if v_idle is not null then
      perform sluice._mark_lanes(v_idle, v_idle_places, p_quantum * c_scale);
    end if;
    exit when v_left < p_want;  -- something: a worker that has room claims again at once
  end loop;
end $$;

-- Answers when every claim that was answered before is on disk. Had a crash of the server taken such a claim back,
-- another worker would get the same attempt; so nobody may work on one before this has answered.
create function sluice.flush() returns void
language sql volatile security definer set search_path = pg_catalog as $$
  select pg_logical_emit_message(true, 'sluice', '')  -- the least that makes a commit wait for the log
$$;
