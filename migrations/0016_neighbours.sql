-- Several clusters, or several operators of one, on one database: what each asks for and sets is its own.

set local role sluice_owner;

-- Active tasks without a resource in the lanes of these resources (`resource_uid` of a lane), as many as each lane's limit leaves room for.
-- Lanes take turns, and of each those come first that run first: so neither another operator's lanes nor a busy one use up the limit.
create function sluice.unmirrored_of(p_cluster text, p_managers text[], p_limit int default 100)
returns table (lane_uid text, tenant text, class text, track_id uuid, type text, workspace text)
language sql stable security definer set search_path = pg_catalog as $$
  select l.resource_uid, l.tenant, l.class::text, t.track_id, t.type::text, t.workspace
    from (select l.lane_id, l.resource_uid, l.tenant, l.class,
                 least(l.mirror_limit - (select count(*) from sluice.mirrors m where m.lane_id = l.lane_id), p_limit, 1000) as room
            from sluice.tenant_lanes l
           where l.cluster = p_cluster and l.mirror_limit > 0 and l.resource_uid = any (p_managers)) l
   cross join lateral (
     select s.track_id, s.type, s.workspace, row_number() over (order by s.turn, s.id) as place from (
       (select t.track_id, t.type, t.workspace, 0 as turn, t.id from sluice.tasks t
         where t.lane_id = l.lane_id and t.leased and t.mirror_id is null and t.root_id is null limit greatest(l.room, 0))
       union all
       (select t.track_id, t.type, t.workspace, 1, t.id from sluice.tasks t
         where t.lane_id = l.lane_id and t.state = 'pending' and t.ready and t.mirror_id is null and t.root_id is null
         order by t.priority desc, t.id limit greatest(l.room, 0))) s
      order by s.turn, s.id limit greatest(l.room, 0)) t
   where l.room > 0
   order by t.place, l.lane_id
   limit least(greatest(p_limit, 1), 1000)
$$;

-- Whose resource sets a pool; null where nobody's does.
alter table sluice.pools add column cluster text, add column namespace text;

create function sluice.pool_managers() returns table (pool text, cluster text, namespace text)
language sql stable security definer set search_path = pg_catalog as $$
  select p.pool, p.cluster, p.namespace from sluice.pools p where p.cluster is not null
$$;

-- A cluster's namespace sets this pool from now on, unless another one does; makes the pool if there is none. Answers whether it may.
create function sluice.manage_pool(p_pool text, p_cluster text, p_namespace text, p_by text default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog as $$
begin
  perform sluice._check_isolation();
  if p_cluster is null or length(p_cluster) not between 1 and 253 or p_namespace is null or length(p_namespace) not between 1 and 253 then
    perform sluice._bad_input('cluster and namespace must have 1 to 253 characters');
  elsif not exists (select from sluice.pools p where p.pool = p_pool) then
    perform sluice.set_pool(p_pool, '{}', p_by);
  end if;
  update sluice.pools p set cluster = p_cluster, namespace = p_namespace where p.pool = p_pool and p.cluster is null;
  return exists (select from sluice.pools p where p.pool = p_pool and p.cluster = p_cluster and p.namespace = p_namespace);
end $$;

-- Its resource is gone: the pool stays as it is, and another may set it. Answers whether it was theirs.
create function sluice.leave_pool(p_pool text, p_cluster text, p_namespace text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog as $$
begin
  perform sluice._check_isolation();
  update sluice.pools p set cluster = null, namespace = null
   where p.pool = p_pool and p.cluster = p_cluster and p.namespace = p_namespace;
  return found;
end $$;

grant execute on function
  sluice.unmirrored_of(text, text[], int), sluice.pool_managers(), sluice.manage_pool(text, text, text, text),
  sluice.leave_pool(text, text, text)
to sluice_operator;
