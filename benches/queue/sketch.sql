-- The two claims of the sketch, given what ours has: the same columns, the same indexes, and a history that is the row
-- itself, kept in place when it ends. `_row`: whoever frees a slot takes the lane's row lock. `_shared`: it takes a
-- shared advisory lock, and a claimer marks a lane only when it got that lock exclusively without waiting.

create schema sketch;
create table sketch.lanes (like sluice.lane_turns including defaults including indexes) with (fillfactor = 50);
create table sketch.tasks (like sluice.tasks including defaults including indexes) with (fillfactor = 85);
-- Ours has this one on the rows that ended.
create index ended_failed on sketch.tasks (lane_id, finished_at) where state = 'failed';

create function sketch.claim_row(p_worker uuid, p_want int, p_quantum int)
returns table (track_id uuid, attempt int, lane_id int) language plpgsql as $$
#variable_conflict use_column
declare
  v_lanes int[];
begin
  select array_agg(s.lane_id) into v_lanes from (
    select l.lane_id from sketch.lanes l
     where l.pool_id = 1 and not l.is_full and not l.is_empty and not l.is_held
     order by l.vtime, l.lane_id limit ceil(p_want::numeric / p_quantum) for no key update skip locked) s;
  if v_lanes is null then
    return;
  end if;
  return query
  with free as (
    select l.lane_id, l.weight,
           greatest(0, l.cap - (select count(*) from sketch.tasks r where r.lane_id = l.lane_id and r.leased))::int as free
      from sketch.lanes l where l.lane_id = any (v_lanes)),
  head as (
    select h.track_id
      from free f cross join lateral (
        select t.track_id from sketch.tasks t
         where t.lane_id = f.lane_id and t.state = 'pending' and t.ready
         order by t.priority desc, t.id
         limit least(f.free, greatest(p_quantum, p_want / cardinality(v_lanes))) for no key update skip locked) h
     limit p_want),
  claimed as (
    update sketch.tasks t
       set state = 'processing', leased = true, attempt = t.attempt + 1, worker_id = p_worker, claim_sequence = 1, started_at = now(),
           lease_until = now() + interval '120 s', deadline = now() + make_interval(secs => t.timeout_secs), progressed = false
      from head where t.track_id = head.track_id
    returning t.track_id, t.attempt, t.lane_id),
  served as (select c.lane_id, count(*) as n from claimed c group by c.lane_id),
  turn as (
    update sketch.lanes l
       set vtime = l.vtime + 1000 * coalesce(s.n, 0) / l.weight,
           is_full = f.free - coalesce(s.n, 0) <= 0 or coalesce(s.n, 0) = 0
      from free f left join served s using (lane_id) where l.lane_id = f.lane_id)
  select c.track_id, c.attempt, c.lane_id from claimed c;
end $$;

create function sketch.complete_row(p_track_ids uuid[], p_attempts int[]) returns int language plpgsql as $$
declare
  v_lanes int[];
  v_count int;
begin
  with ended as (
    update sketch.tasks t set state = 'completed', leased = false, lease_until = null, finished_at = now()
      from unnest(p_track_ids, p_attempts) u (track_id, attempt)
     where t.track_id = u.track_id and t.attempt = u.attempt and t.state in ('processing', 'stopping')
    returning t.lane_id)
  select array_agg(distinct e.lane_id order by e.lane_id), count(*) into v_lanes, v_count from ended e;
  perform from sketch.lanes l where l.lane_id = any (v_lanes) order by l.lane_id for no key update;
  update sketch.lanes l set is_full = false where l.lane_id = any (v_lanes) and l.is_full;
  return v_count;
end $$;

create function sketch.claim_shared(p_worker uuid, p_want int, p_quantum int)
returns table (track_id uuid, attempt int, lane_id int) language plpgsql as $$
#variable_conflict use_column
declare
  v_lanes int[];
  v_each int;
  v_ids uuid[];
  v_attempts int[];
  v_of int[];
  v_done int[];
  v_marked int[];
begin
  select array_agg(s.lane_id) into v_lanes from (
    select l.lane_id from sketch.lanes l
     where l.pool_id = 1 and not l.is_full and not l.is_empty and not l.is_held
     order by l.vtime, l.lane_id limit ceil(p_want::numeric / p_quantum) for no key update skip locked) s;
  if v_lanes is null then
    select array_agg(s.lane_id) into v_lanes from (
      select l.lane_id from sketch.lanes l
       where not l.is_full and not l.is_empty and not l.is_held and l.lane_id = (
         select x.lane_id from (
           select y.lane_id from sketch.lanes y where y.pool_id = 1 and not y.is_full and not y.is_empty and not y.is_held
            order by y.vtime, y.lane_id limit 16) x
          order by random() limit 1)
       for no key update) s;
    if v_lanes is null then
      return;
    end if;
  end if;
  v_each := greatest(p_quantum, p_want / cardinality(v_lanes));
  with free as materialized (
    select l.lane_id, l.weight,
           greatest(0, l.cap - (select count(*) from sketch.tasks r where r.lane_id = l.lane_id and r.leased))::int as free
      from sketch.lanes l where l.lane_id = any (v_lanes)),
  head as materialized (
    select h.track_id
      from free f cross join lateral (
        select t.track_id from sketch.tasks t
         where t.lane_id = f.lane_id and t.state = 'pending' and t.ready
         order by t.priority desc, t.id limit least(f.free, v_each) for no key update skip locked) h
     limit p_want),
  claimed as (
    update sketch.tasks t
       set state = 'processing', leased = true, attempt = t.attempt + 1, worker_id = p_worker, claim_sequence = 1, started_at = now(),
           lease_until = now() + interval '120 s', deadline = now() + make_interval(secs => t.timeout_secs), progressed = false
      from head where t.track_id = head.track_id
    returning t.track_id, t.attempt, t.lane_id),
  served as (select c.lane_id, count(*) as n from claimed c group by c.lane_id),
  turn as (
    update sketch.lanes l set vtime = l.vtime + 1000 * s.n / l.weight from served s where l.lane_id = s.lane_id)
  select array_agg(c.track_id), array_agg(c.attempt), array_agg(c.lane_id),
         (select array_agg(f.lane_id) from free f left join served s using (lane_id)
           where f.free <= coalesce(s.n, 0) or coalesce(s.n, 0) < least(f.free, v_each))
    into v_ids, v_attempts, v_of, v_done from claimed c;
  if v_done is not null then
    select array_agg(l) into v_marked from unnest(v_done) l where pg_try_advisory_xact_lock(7, l);
    if v_marked is not null then
      update sketch.lanes l set is_full = x.is_full, is_empty = x.is_empty
        from (select s.lane_id,
                     s.cap <= (select count(*) from sketch.tasks r where r.lane_id = s.lane_id and r.leased) as is_full,
                     not exists (select from sketch.tasks t
                                  where t.lane_id = s.lane_id and t.state = 'pending' and t.ready) as is_empty
                from sketch.lanes s where s.lane_id = any (v_marked)) x
       where l.lane_id = x.lane_id and (x.is_full or x.is_empty);
    end if;
  end if;
  return query select * from unnest(v_ids, v_attempts, v_of);
end $$;

create function sketch.complete_shared(p_track_ids uuid[], p_attempts int[]) returns int language plpgsql as $$
declare
  v_lanes int[];
  v_count int;
begin
  with ended as (
    update sketch.tasks t set state = 'completed', leased = false, lease_until = null, finished_at = now()
      from unnest(p_track_ids, p_attempts) u (track_id, attempt)
     where t.track_id = u.track_id and t.attempt = u.attempt and t.state in ('processing', 'stopping')
    returning t.lane_id)
  select array_agg(distinct e.lane_id order by e.lane_id), count(*) into v_lanes, v_count from ended e;
  perform pg_advisory_xact_lock_shared(7, l) from unnest(v_lanes) l;
  update sketch.lanes l set is_full = false, vtime = greatest(l.vtime, (select p.vfloor from sluice.pools p where p.pool_id = l.pool_id))
   where l.lane_id = any (v_lanes) and l.is_full;
  return v_count;
end $$;
