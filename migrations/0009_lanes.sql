-- Lanes and pools: limits, weight, policy; what the platform sets.

set local role sluice_owner;

-- Writes what a lane's settings come to into its turn. A lane that wakes by it starts beside the others: idling, or a
-- hold, earned no credit; and with more weight, or in another pool, its old turn would say nothing.
create function sluice._apply_lane(p_lane int, p_afresh boolean) returns void
language plpgsql volatile set search_path = pg_catalog as $$
begin
  update sluice.tenant_lanes l
     set effective_max_running = e.cap, effective_reason = case when e.cap <> l.max_running then e.clamp_reason end
    from (select x.lane_id, p.clamp_reason,
                 sluice._effective_cap(x.max_running, case x.class when 'ingest' then p.ingest_clamp else p.lifecycle_clamp end) as cap
            from sluice.tenant_lanes x join sluice.pools p on p.pool_id = x.pool_id where x.lane_id = p_lane) e
   where l.lane_id = e.lane_id;
  perform from sluice.lane_turns t where t.lane_id = p_lane for no key update;
  update sluice.lane_turns t
     set pool_id = l.pool_id, weight = l.weight, is_full = false, is_empty = false,
         cap = case l.effective_max_running when 0 then 2147483647 else l.effective_max_running end,
         is_held = l.policy <> 'none' or coalesce(l.cooled_until > now(), false),
         vtime = case when p_afresh or t.pool_id <> l.pool_id or l.weight > t.weight then sluice._turn_floor(l.pool_id)
                      else greatest(t.vtime, case when t.is_full or t.is_empty or t.is_held then sluice._turn_floor(l.pool_id) end) end
    from sluice.tenant_lanes l
   where t.lane_id = p_lane and l.lane_id = p_lane;
end $$;

-- Sets what is given of {"pool", "max_running" (0 = no cap), "weight" (1 to 1000), "policy" (none, hold, hold_and_drain),
-- "policy_reason", "allowed_sources", "mirror_limit", "cluster", "resource_uid"}; makes the lane if there is none. A lowered
-- cap kills nothing. A field given as null goes back to its default. Answers the lane's effective cap and why it differs.
create function sluice.set_lane(p_tenant text, p_class text, p_settings jsonb default '{}', p_by text default null)
returns table (lane_id int, effective_max_running int, effective_reason text)
language plpgsql volatile security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
  v_lane int;
  v_pool int;
begin
  perform sluice._check_isolation();
  if p_tenant is null or length(p_tenant) not between 1 and 253 then
    perform sluice._bad_input('tenant must have 1 to 253 characters');
  elsif p_class is null or p_class not in ('ingest', 'lifecycle') then
    perform sluice._bad_input(format('class is %s', coalesce(quote_literal(left(p_class, 64)), 'null')), 'it must be ingest or lifecycle');
  elsif jsonb_typeof(p_settings) is distinct from 'object'
     or p_settings - array['pool', 'max_running', 'weight', 'policy', 'policy_reason', 'allowed_sources', 'mirror_limit', 'cluster',
                           'resource_uid'] <> '{}' then
    perform sluice._bad_input('the settings are not an object of the known fields', 'see set_lane in docs/protocol.md');
  elsif sluice._int(nullif(p_settings -> 'max_running', 'null'), 0, 0, 1000000) is null then
    perform sluice._bad_input('max_running must be a whole number from 0 to 1000000', '0 means no cap');
  elsif sluice._int(nullif(p_settings -> 'weight', 'null'), 1, 1, 1000) is null then
    perform sluice._bad_input('weight must be a whole number from 1 to 1000');
  elsif coalesce(p_settings ->> 'policy', 'none') not in ('none', 'hold', 'hold_and_drain') then
    perform sluice._bad_input('policy must be none, hold or hold_and_drain');
  elsif jsonb_typeof(p_settings -> 'allowed_sources') not in ('array', 'null')
     or jsonb_typeof(p_settings -> 'allowed_sources') = 'array' and jsonb_array_length(p_settings -> 'allowed_sources') > 100 then
    perform sluice._bad_input('allowed_sources must be an array of at most 100 URL prefixes');
  elsif sluice._int(nullif(p_settings -> 'mirror_limit', 'null'), 0, 0, 100000) is null then
    perform sluice._bad_input('mirror_limit must be a whole number from 0 to 100000');
  end if;
  select p.pool_id into v_pool from sluice.pools p where p.pool = coalesce(p_settings ->> 'pool', 'default');
  if not found then
    raise exception 'there is no pool %', quote_literal(left(p_settings ->> 'pool', 253)) using errcode = 'P0002', hint = 'make it with set_pool first';
  end if;
  v_lane := sluice._lane(p_tenant, p_class::sluice.lane_class);
  perform from sluice.tenant_lanes l where l.lane_id = v_lane for no key update;
  update sluice.tenant_lanes l
     set pool_id = case when p_settings ? 'pool' then v_pool else l.pool_id end,
         max_running = case when not p_settings ? 'max_running' then l.max_running
                            when p_settings ->> 'max_running' is not null then (p_settings ->> 'max_running')::int
                            when l.class = 'ingest' then p.ingest_cap else p.lifecycle_cap end,
         is_default = case when p_settings ? 'max_running' then p_settings ->> 'max_running' is null else l.is_default end,
         weight = case when p_settings ? 'weight' then coalesce((p_settings ->> 'weight')::int, 1) else l.weight end,
         policy = case when p_settings ? 'policy' then coalesce(p_settings ->> 'policy', 'none')::sluice.lane_policy else l.policy end,
         policy_reason = case when p_settings ? 'policy' or p_settings ? 'policy_reason'
                              then left(p_settings ->> 'policy_reason', 1024) else l.policy_reason end,
         allowed_sources = case when p_settings ? 'allowed_sources'
                                then array(select left(s, 2048) from jsonb_array_elements_text(coalesce(nullif(p_settings -> 'allowed_sources', 'null'), '[]')) s)
                                else l.allowed_sources end,
         mirror_limit = case when p_settings ? 'mirror_limit' then coalesce((p_settings ->> 'mirror_limit')::int, 0) else l.mirror_limit end,
         cluster = case when p_settings ? 'cluster' then left(p_settings ->> 'cluster', 253) else l.cluster end,
         resource_uid = case when p_settings ? 'resource_uid' then left(p_settings ->> 'resource_uid', 253) else l.resource_uid end
    from sluice.pools p
   where l.lane_id = v_lane and p.pool_id = case when p_settings ? 'pool' then v_pool else l.pool_id end;
  perform sluice._apply_lane(v_lane, false);
  perform sluice._event('lane_set', null, v_lane, null, p_by, p_settings::text);
  return query select l.lane_id, l.effective_max_running, l.effective_reason from sluice.tenant_lanes l where l.lane_id = v_lane;
end $$;

-- Pauses a lane, or lets it go on: p_policy is none, hold (running work goes on) or hold_and_drain (it is given back).
create function sluice.hold_lane(p_tenant text, p_class text, p_policy text, p_reason text default null, p_by text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog as $$
begin
  if p_policy is null then
    perform sluice._bad_input('policy must be none, hold or hold_and_drain');
  end if;
  perform sluice.set_lane(p_tenant, p_class, jsonb_build_object('policy', p_policy, 'policy_reason', p_reason), p_by);
  return p_policy;
end $$;

-- Pauses a pool's lanes, or those of all pools (p_pool null); running work goes on. Answers how many pools it changed.
create function sluice.hold_all(p_held boolean, p_pool text default null, p_reason text default null, p_by text default null) returns int
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_changed int;
begin
  perform sluice._check_isolation();
  if p_held is null then
    perform sluice._bad_input('p_held is null', 'send true to hold, false to go on');
  end if;
  update sluice.pools p set held = p_held, hold_reason = case when p_held then left(p_reason, 1024) end
   where (p_pool is null or p.pool = p_pool) and p.held <> p_held;
  get diagnostics v_changed = row_count;
  if v_changed > 0 then
    perform sluice._event(case when p_held then 'held' else 'unheld' end, null, null, null, p_by, coalesce(p_pool, 'all pools') || coalesce(': ' || p_reason, ''));
  end if;
  return v_changed;
end $$;

-- Sets what is given of {"ingest_cap", "lifecycle_cap" (of lanes whose limits nobody set; 0 = no cap), "ingest_clamp",
-- "lifecycle_clamp" (nothing above them; null = none), "clamp_reason", "lease_secs", "auto_resume"}; makes the pool if there is none.
create function sluice.set_pool(p_pool text, p_settings jsonb default '{}', p_by text default null) returns void
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_pool int;
begin
  perform sluice._check_isolation();
  if p_pool is null or length(p_pool) not between 1 and 253 then
    perform sluice._bad_input('pool must have 1 to 253 characters');
  elsif jsonb_typeof(p_settings) is distinct from 'object'
     or p_settings - array['ingest_cap', 'lifecycle_cap', 'ingest_clamp', 'lifecycle_clamp', 'clamp_reason', 'lease_secs', 'auto_resume'] <> '{}' then
    perform sluice._bad_input('the settings are not an object of the known fields', 'see set_pool in docs/protocol.md');
  elsif sluice._int(p_settings -> 'ingest_cap', 0, 0, 1000000) is null or sluice._int(p_settings -> 'lifecycle_cap', 0, 0, 1000000) is null
     or sluice._int(nullif(p_settings -> 'ingest_clamp', 'null'), 1, 1, 1000000) is null
     or sluice._int(nullif(p_settings -> 'lifecycle_clamp', 'null'), 1, 1, 1000000) is null then
    perform sluice._bad_input('a cap or clamp is not a whole number in its bounds', 'caps are from 0 (no cap) to 1000000, clamps from 1');
  elsif sluice._int(p_settings -> 'lease_secs', 120, 1, 86400) is null then
    perform sluice._bad_input('lease_secs must be a whole number from 1 to 86400');
  elsif jsonb_typeof(p_settings -> 'auto_resume') <> 'boolean' then
    perform sluice._bad_input('auto_resume must be true or false');
  end if;
  insert into sluice.pools (pool) values (p_pool) on conflict (pool) do nothing;
  update sluice.pools p
     set ingest_cap = coalesce((p_settings ->> 'ingest_cap')::int, p.ingest_cap),
         lifecycle_cap = coalesce((p_settings ->> 'lifecycle_cap')::int, p.lifecycle_cap),
         ingest_clamp = case when p_settings ? 'ingest_clamp' then (p_settings ->> 'ingest_clamp')::int else p.ingest_clamp end,
         lifecycle_clamp = case when p_settings ? 'lifecycle_clamp' then (p_settings ->> 'lifecycle_clamp')::int else p.lifecycle_clamp end,
         clamp_reason = case when p_settings ? 'clamp_reason' then left(p_settings ->> 'clamp_reason', 1024) else p.clamp_reason end,
         lease_secs = coalesce((p_settings ->> 'lease_secs')::int, p.lease_secs),
         auto_resume = coalesce((p_settings ->> 'auto_resume')::boolean, p.auto_resume)
   where p.pool = p_pool
  returning p.pool_id into v_pool;
  perform from sluice.tenant_lanes l where l.pool_id = v_pool order by l.lane_id for no key update;
  update sluice.tenant_lanes l set max_running = case l.class when 'ingest' then p.ingest_cap else p.lifecycle_cap end
    from sluice.pools p where p.pool_id = v_pool and l.pool_id = v_pool and l.is_default
     and l.max_running <> case l.class when 'ingest' then p.ingest_cap else p.lifecycle_cap end;
  perform sluice._apply_lane(l.lane_id, false) from (
    select l.lane_id from sluice.tenant_lanes l join sluice.lane_turns t on t.lane_id = l.lane_id join sluice.pools p on p.pool_id = l.pool_id
     where l.pool_id = v_pool
       and t.cap <> case sluice._effective_cap(l.max_running, case l.class when 'ingest' then p.ingest_clamp else p.lifecycle_clamp end)
                      when 0 then 2147483647
                      else sluice._effective_cap(l.max_running, case l.class when 'ingest' then p.ingest_clamp else p.lifecycle_clamp end) end
     order by l.lane_id) l;
  perform sluice._event('pool_set', null, null, null, p_by, p_pool || ': ' || p_settings::text);
end $$;

-- A provider said 429: the lanes rest for 30, 60, 120, 300 s, and at least as long as it asked for, up to an hour. Ten quiet
-- minutes after a rest start it over.
create function sluice._cool_lanes(p_lanes int[], p_retry_after_secs int) returns void
language plpgsql volatile set search_path = pg_catalog as $$
declare
  -- Null if it asked for nothing; `least` would not be.
  v_asked timestamptz := now() + make_interval(secs => case when p_retry_after_secs > 3600 then 3600 else p_retry_after_secs end);
begin
  perform from sluice.tenant_lanes l where l.lane_id = any (p_lanes) order by l.lane_id for no key update;
  update sluice.tenant_lanes l
     set cool_downs = n.n, cooled_until = now() + make_interval(secs => (array[30, 60, 120, 300])[least(n.n, 4)])
    from (select x.lane_id, case when x.cooled_until > now() - interval '10 minutes' then x.cool_downs + 1 else 1 end as n
            from sluice.tenant_lanes x where x.lane_id = any (p_lanes)) n
   where l.lane_id = n.lane_id and coalesce(l.cooled_until, '-infinity') <= now();
  update sluice.tenant_lanes l set cooled_until = v_asked where l.lane_id = any (p_lanes) and l.cooled_until < v_asked;
  perform sluice._apply_lane(l, false) from unnest(p_lanes) l;
end $$;
