-- Reads: one call for all, for the operator, the API and people.

set local role sluice_owner;

-- The NOTIFY after the commit that made work: a call of its own, since inside that transaction it costs most of its speed.
create function sluice.wake(p_pool text default 'default') returns void
language sql volatile security definer set search_path = pg_catalog as $$
  select pg_notify('sluice_wake', left(p_pool, 253))
$$;

-- What a process asks before it works: the newest migration, and the length of a pool's leases (null: there is no such pool).
create function sluice.about(p_pool text default 'default') returns table (schema_version int, lease_secs int)
language sql stable security definer set search_path = pg_catalog as $$
  select (select max(m.version) from sluice.migrations m), (select p.lease_secs from sluice.pools p where p.pool = p_pool)
$$;

-- All tasks, live and ended, in words.
create view sluice.task_status as
  select t.track_id, l.tenant, l.class::text as class, p.pool, t.workspace, t.type::text as type, t.state::text as state, t.ready,
         t.suspended, t.priority, t.attempt, t.failures, t.retries, t.lost_leases, t.max_attempts, t.worker_id, t.stage, t.progress,
         t.message, t.document_id, t.parent_id, t.root_id, t.failure_class, t.error, t.cost, t.tokens, t.cancel_at, t.cancel_by,
         t.cancel_reason, t.created_at, t.available_at, t.started_at, t.lease_until, t.finished_at, t.timeout_secs, t.payload, t.result,
         d.status as document_status, d.stage as document_stage, d.pdf_status, d.pages, d.failure_class as document_failure_class
    from (
      select a.track_id, a.lane_id, a.workspace, a.type, a.state, a.ready, a.suspended, a.priority, a.attempt, a.failures, a.retries,
             a.lost_leases, a.max_attempts, a.worker_id, a.stage, a.progress, a.message, a.document_id, a.parent_id, a.root_id,
             a.failure_class, a.error, a.cost, a.tokens, a.cancel_at, a.cancel_by, a.cancel_reason, a.created_at, a.available_at,
             a.started_at, a.lease_until, a.finished_at, a.timeout_secs, a.payload, a.result
        from sluice.tasks a
      union all
      select a.track_id, a.lane_id, a.workspace, a.type, a.state, a.ready, a.suspended, a.priority, a.attempt, a.failures, a.retries,
             a.lost_leases, a.max_attempts, a.worker_id, a.stage, a.progress, a.message, a.document_id, a.parent_id, a.root_id,
             a.failure_class, a.error, a.cost, a.tokens, a.cancel_at, a.cancel_by, a.cancel_reason, a.created_at, a.available_at,
             a.started_at, a.lease_until, a.finished_at, a.timeout_secs, a.payload, a.result
        from sluice.tasks_archive a) t
    join sluice.tenant_lanes l on l.lane_id = t.lane_id
    join sluice.pools p on p.pool_id = l.pool_id
    left join sluice.documents d on d.document_id = t.document_id;

-- Lanes with their counts. `parked`: ready, but the lane is full, held or resting. `completed_since_idle` starts over when
-- work comes to a lane where nothing ran and nothing was ready. p_tenants null: all lanes.
create function sluice.lane_counts(p_tenants text[] default null)
returns table (tenant text, class text, pool text, max_running int, effective_max_running int, effective_reason text, weight int,
               policy text, policy_reason text, cluster text, resource_uid text, running bigint, stopping bigint, ready bigint,
               parked bigint, suspended bigint, backing_off bigint, pending bigint, failed bigint, completed_since_idle bigint,
               is_default boolean, allowed_sources text[], mirror_limit int, pool_held boolean, cooling boolean)
language sql stable security definer set search_path = pg_catalog as $$
  select l.tenant, l.class::text, p.pool, l.max_running, l.effective_max_running, l.effective_reason, l.weight, l.policy::text,
         coalesce(p.hold_reason, l.policy_reason), l.cluster, l.resource_uid, coalesce(r.running, 0), coalesce(r.stopping, 0),
         coalesce(q.ready, 0),
         case when p.held or t.is_held then coalesce(q.ready, 0)
              else greatest(0, coalesce(q.ready, 0) - greatest(0, t.cap::bigint - coalesce(r.running + r.stopping, 0))) end,
         coalesce(q.suspended, 0), coalesce(q.backing_off, 0), coalesce(q.ready + q.suspended + q.backing_off, 0), coalesce(f.failed, 0),
         case when r.lane_id is null and (t.is_empty or coalesce(q.ready, 0) = 0) then 0
              else greatest(0, t.served - t.idle_served - coalesce(r.running + r.stopping, 0) - coalesce(m.misses, 0))::bigint end,
         l.is_default, l.allowed_sources, l.mirror_limit, p.held, coalesce(l.cooled_until > now(), false)
    from sluice.tenant_lanes l
    join sluice.lane_turns t on t.lane_id = l.lane_id
    join sluice.pools p on p.pool_id = l.pool_id
    left join (select a.lane_id, count(*) filter (where a.state = 'processing') as running,
                      count(*) filter (where a.state = 'stopping') as stopping
                 from sluice.tasks a where a.leased group by a.lane_id) r on r.lane_id = l.lane_id
    left join (select a.lane_id, count(*) filter (where a.ready) as ready, count(*) filter (where a.suspended) as suspended,
                      count(*) filter (where not a.ready and not a.suspended) as backing_off
                 from sluice.tasks a where a.state = 'pending' group by a.lane_id) q on q.lane_id = l.lane_id
    left join (select a.lane_id, count(*) as failed from sluice.tasks_archive a where a.state = 'failed' group by a.lane_id) f
      on f.lane_id = l.lane_id
    left join (select x.lane_id, sum(x.misses) as misses from sluice.lane_misses x group by x.lane_id) m on m.lane_id = l.lane_id
   where p_tenants is null or l.tenant = any (p_tenants)
$$;

-- What the tasks of a lane may read: prefixes of URLs. Null: there is no such lane. Workers ask when they read.
create function sluice.lane_sources(p_tenant text, p_class text) returns text[]
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
  return (select l.allowed_sources from sluice.tenant_lanes l where l.tenant = p_tenant and l.class::text = p_class);
end $$;

-- What each pool could do now: running + stopping + what its lanes may start, each under its cap (design §5), and its workers.
create function sluice.pool_demand()
returns table (pool text, demand bigint, running bigint, stopping bigint, startable bigint, held boolean, workers bigint, draining bigint)
language sql stable security definer set search_path = pg_catalog as $$
  select p.pool, coalesce(d.running + d.stopping + d.startable, 0)::bigint, coalesce(d.running, 0)::bigint, coalesce(d.stopping, 0)::bigint,
         coalesce(d.startable, 0)::bigint, p.held, coalesce(w.workers, 0), coalesce(w.draining, 0)
    from sluice.pools p
    left join (
      select t.pool_id, sum(coalesce(r.running, 0)) as running, sum(coalesce(r.stopping, 0)) as stopping, sum(coalesce(h.startable, 0)) as startable
        from sluice.lane_turns t
        join sluice.pools q on q.pool_id = t.pool_id
        left join (select a.lane_id, count(*) filter (where a.state = 'processing') as running,
                          count(*) filter (where a.state = 'stopping') as stopping
                     from sluice.tasks a where a.leased group by a.lane_id) r on r.lane_id = t.lane_id
        -- No more heads are read than the lane may start.
        left join lateral (
          select count(*) as startable from (
            select from sluice.tasks a where a.lane_id = t.lane_id and a.state = 'pending' and a.ready
             limit greatest(0, t.cap::bigint - coalesce(r.running + r.stopping, 0))) s) h
          -- A lane that was woken keeps its mark until a claim reads the wake, and a pool without workers claims nothing.
          on not t.is_held and not q.held
             and (not t.is_empty or exists (select from sluice.lane_wakes k where k.lane_id = t.lane_id))
       group by t.pool_id) d on d.pool_id = p.pool_id
    left join (select k.pool_id, count(*) as workers, count(*) filter (where k.draining) as draining
                 from sluice.workers k where k.alive_until > now() and not k.stands_for_pool group by k.pool_id) w
      on w.pool_id = p.pool_id
$$;

-- Workers of a pool with the leases that each holds: what scale-down looks at.
create function sluice.pool_workers(p_pool text default null)
returns table (worker_id uuid, pool text, pod_name text, pod_uid text, version text, slots int, draining boolean, alive boolean, leases bigint)
language sql stable security definer set search_path = pg_catalog as $$
  select w.worker_id, p.pool, w.pod_name, w.pod_uid, w.version, w.slots, w.draining, w.alive_until > now(), coalesce(h.leases, 0)
    from sluice.workers w
    join sluice.pools p on p.pool_id = w.pool_id
    left join (select t.worker_id, count(*) as leases from sluice.tasks t where t.leased group by t.worker_id) h on h.worker_id = w.worker_id
   where p_pool is null or p.pool = p_pool
$$;

-- The settings of all pools, for whoever has to know whether they are as they should be.
create function sluice.pool_settings()
returns table (pool text, ingest_cap int, lifecycle_cap int, ingest_clamp int, lifecycle_clamp int, clamp_reason text,
               lease_secs int, auto_resume boolean, held boolean, hold_reason text)
language sql stable security definer set search_path = pg_catalog as $$
  select p.pool, p.ingest_cap, p.lifecycle_cap, p.ingest_clamp, p.lifecycle_clamp, p.clamp_reason, p.lease_secs, p.auto_resume,
         p.held, p.hold_reason
    from sluice.pools p
$$;

-- The newest task of a tree: what speaks for its document.
create function sluice._newest(p_root uuid) returns uuid
language sql stable set search_path = pg_catalog as $$
  select coalesce((select t.track_id from sluice.tasks t where t.root_id = p_root order by t.id desc limit 1),
                  (select t.track_id from sluice.tasks_archive t where t.root_id = p_root order by t.id desc limit 1), p_root)
$$;

-- Resources of a cluster, and of these namespaces if any are named, whose rows changed since they were acknowledged.
create function sluice.mirror_changes(p_cluster text, p_limit int default 500, p_namespaces text[] default null, p_after bigint default 0)
returns table (mirror_id bigint, namespace text, name text, uid text, rev bigint, track_id uuid, newest_track_id uuid)
language plpgsql volatile security definer set search_path = pg_catalog as $$
#variable_conflict use_column
begin
  perform sluice._check_isolation();
  -- Folds what transitions appended; rows that another reader has locked are its.
  with taken as (
    delete from sluice.mirror_dirty d
     where d.dirty_id in (select x.dirty_id from sluice.mirror_dirty x order by x.dirty_id limit 10000 for update skip locked)
    returning d.mirror_id),
  changed as (select distinct t.mirror_id from taken t),
  held as (select m.mirror_id from sluice.mirrors m join changed c on c.mirror_id = m.mirror_id order by m.mirror_id for no key update of m)
  update sluice.mirrors m set rev = m.rev + 1 from held h where m.mirror_id = h.mirror_id;
  return query
  select m.mirror_id, m.namespace, m.name, m.uid, m.rev, m.track_id, sluice._newest(m.track_id)
    from sluice.mirrors m
   where m.cluster = p_cluster and m.rev <> m.mirrored_rev and m.mirror_id > p_after
     and (p_namespaces is null or m.namespace = any (p_namespaces))
   order by m.mirror_id limit least(greatest(p_limit, 1), 1000);
end $$;

-- The status of these resources was written at these revisions. Answers how many rows moved.
create function sluice.mirror_ack(p_mirrors bigint[], p_revs bigint[]) returns int
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_count int;
begin
  perform sluice._check_isolation();
  if cardinality(p_mirrors) > 1000 then
    raise exception '% mirrors in one call', cardinality(p_mirrors) using errcode = '54000', hint = 'send at most 1000 in one call';
  elsif cardinality(p_mirrors) is distinct from cardinality(p_revs) then
    raise exception '% mirrors, but % revisions', cardinality(p_mirrors), cardinality(p_revs)
      using errcode = '2202E', hint = 'send one revision for each mirror';
  end if;
  perform from sluice.mirrors m where m.mirror_id = any (p_mirrors) order by m.mirror_id for no key update;
  update sluice.mirrors m set mirrored_rev = greatest(m.mirrored_rev, u.rev)
    from (select a.mirror_id, max(a.rev) as rev from unnest(p_mirrors, p_revs) a (mirror_id, rev) group by a.mirror_id) u
   where m.mirror_id = u.mirror_id and m.mirrored_rev < u.rev;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
