-- Custom resources and their tasks: what the operator looks up, and what it lets go.

set local role sluice_owner;

-- What is known of these resources; no row for those that have no task.
create function sluice.resources(p_cluster text, p_uids text[])
returns table (mirror_id bigint, namespace text, name text, uid text, rev bigint, mirrored_rev bigint, track_id uuid, newest_track_id uuid,
               retains boolean)
language sql stable security definer set search_path = pg_catalog as $$
  select m.mirror_id, m.namespace, m.name, m.uid, m.rev, m.mirrored_rev, m.track_id, sluice._newest(m.track_id), m.retains
    from sluice.mirrors m where m.cluster = p_cluster and m.uid = any (p_uids)
$$;

-- All resources of a cluster, and of these namespaces if any are named, a page at a time: whoever looks for those that are gone
-- asks for what comes after the last.
create function sluice.resources_after(p_cluster text, p_after bigint default 0, p_limit int default 1000, p_namespaces text[] default null)
returns table (mirror_id bigint, namespace text, name text, uid text, track_id uuid, retains boolean)
language sql stable security definer set search_path = pg_catalog as $$
  select m.mirror_id, m.namespace, m.name, m.uid, m.track_id, m.retains
    from sluice.mirrors m
   where m.cluster = p_cluster and m.mirror_id > p_after and (p_namespaces is null or m.namespace = any (p_namespaces))
   order by m.mirror_id limit least(greatest(p_limit, 1), 1000)
$$;

-- Whether the task outlives this resource. Answers whether the resource is known.
create function sluice.set_retains(p_cluster text, p_uid text, p_retains boolean) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog as $$
begin
  perform sluice._check_isolation();
  update sluice.mirrors m set retains = p_retains where m.cluster = p_cluster and m.uid = p_uid and m.retains <> p_retains;
  return found or exists (select from sluice.mirrors m where m.cluster = p_cluster and m.uid = p_uid);
end $$;

-- A resource shows a task that is there already, with all of its tree, and never cancels it by its going: `mirrored`; `existing` (it
-- does so already); `taken` (another resource does); `not_found`.
create function sluice.mirror_task(p_cluster text, p_namespace text, p_name text, p_uid text, p_track_id uuid, p_tenant text)
returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_task record;
  v_mirror bigint;
  v_shown bigint;
begin
  perform sluice._check_isolation();
  select f.state, f.root_id, f.lane_id into v_task from sluice._find(p_track_id, p_tenant, null) f;
  if not found then
    return 'not_found';
  end if;
  -- The order of locks: tasks, mirrors.
  perform from sluice.tasks t where t.track_id = v_task.root_id for no key update;
  insert into sluice.task_keys (scope, kind, key, track_id) values (p_cluster, 'resource', p_uid, v_task.root_id)
  on conflict (scope, kind, key) do nothing;
  if not found then
    return 'existing';
  end if;
  select t.mirror_id into v_shown
    from (select t.mirror_id from sluice.tasks t where t.track_id = v_task.root_id
          union all select a.mirror_id from sluice.tasks_archive a where a.track_id = v_task.root_id) t;
  if exists (select from sluice.mirrors m where m.mirror_id = v_shown) then
    delete from sluice.task_keys k where k.scope = p_cluster and k.kind = 'resource' and k.key = p_uid;
    return 'taken';
  end if;
  insert into sluice.mirrors (cluster, namespace, name, uid, track_id, retains, lane_id)
  values (p_cluster, p_namespace, p_name, p_uid, v_task.root_id, true, v_task.lane_id)
  returning mirror_id into v_mirror;
  update sluice.tasks t set mirror_id = v_mirror where t.track_id = v_task.root_id or t.root_id = v_task.root_id;
  update sluice.tasks_archive t set mirror_id = v_mirror where t.track_id = v_task.root_id or t.root_id = v_task.root_id;
  perform sluice._dirty(array[v_mirror]);
  return 'mirrored';
end $$;

-- These resources are gone: nothing of them is kept but their tasks, which are cancelled or not before. Answers how many were known.
create function sluice.forget_resources(p_cluster text, p_uids text[]) returns int
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_count int;
begin
  perform sluice._check_isolation();
  if cardinality(p_uids) > 1000 then
    raise exception '% resources in one call', cardinality(p_uids) using errcode = '54000', hint = 'send at most 1000 in one call';
  end if;
  delete from sluice.task_keys k where k.scope = p_cluster and k.kind = 'resource' and k.key = any (p_uids);
  get diagnostics v_count = row_count;
  delete from sluice.mirrors m where m.cluster = p_cluster and m.uid = any (p_uids);
  return v_count;
end $$;

-- Active tasks without a resource in the lanes of these resources (`resource_uid` of a lane), as many as each lane's limit leaves room for.
-- Lanes take turns, and of each those come first that run first: so neither another operator's lanes nor a busy one use up the limit.
create function sluice.unmirrored(p_cluster text, p_managers text[], p_limit int default 100)
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

-- Whose document it is; no row if there is none.
create function sluice.document_owner(p_document_id uuid) returns table (tenant text, workspace text)
language sql stable security definer set search_path = pg_catalog as $$
  select d.tenant, d.workspace from sluice.documents d where d.document_id = p_document_id
$$;

-- What followed from these tasks, the newest first, at most p_limit of each.
create function sluice.follow_ons(p_roots uuid[], p_limit int default 16)
returns table (root_id uuid, track_id uuid, type text, state text)
language sql stable security definer set search_path = pg_catalog as $$
  select r.root_id, f.track_id, f.type, f.state
    from unnest(p_roots) r (root_id)
   cross join lateral (
     select s.track_id, s.type, s.state from (
       select t.track_id, t.type::text, t.state::text, t.id from sluice.tasks t where t.root_id = r.root_id
       union all
       select a.track_id, a.type::text, a.state::text, a.id from sluice.tasks_archive a where a.root_id = r.root_id) s
      order by s.id desc limit least(greatest(p_limit, 1), 1000)) f
$$;

grant execute on function
  sluice.resources(text, text[]), sluice.resources_after(text, bigint, int, text[]), sluice.set_retains(text, text, boolean),
  sluice.mirror_task(text, text, text, text, uuid, text), sluice.forget_resources(text, text[]), sluice.unmirrored(text, text[], int),
  sluice.document_owner(uuid), sluice.follow_ons(uuid[], int)
to sluice_operator;
