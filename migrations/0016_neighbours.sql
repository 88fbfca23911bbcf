-- Several clusters, or several operators of one, on one database: what each sets is its own.

set local role sluice_owner;

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
  sluice.pool_managers(), sluice.manage_pool(text, text, text, text), sluice.leave_pool(text, text, text)
to sluice_operator;
