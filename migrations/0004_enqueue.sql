-- Enqueue: work comes in.

set local role sluice_owner;

create type sluice._item as (
  position int, outcome text, message text, track_id uuid, type sluice.task_type, tenant text, class sluice.lane_class, lane_id int,
  workspace text, payload jsonb, priority int, delay_secs float8, suspended boolean, max_attempts int, timeout_secs int,
  document_id uuid, idempotency_key text, exclusive_hash uuid, resource jsonb, is_keyed boolean);

-- A whole number of a JSON value: the default if it is not there, null if it is not one or out of bounds.
create function sluice._int(p_value jsonb, p_default int, p_low int, p_high int) returns int
language sql immutable parallel safe
return case when p_value is null then p_default
              when jsonb_typeof(p_value) = 'number' and p_value::numeric between p_low and p_high
                   and trunc(p_value::numeric) = p_value::numeric then p_value::int end;

-- The hash of what makes a name unique to a tenant; 128 bits.
create function sluice._hash(p_tenant text, p_key text) returns uuid
language sql immutable parallel safe
return encode(substring(sha256(convert_to(length(p_tenant) || ':' || p_tenant || p_key, 'UTF8')) for 16), 'hex')::uuid;

-- What two requests with one idempotency key must agree in.
create function sluice._content_hash(p_item sluice._item) returns bytea
language sql immutable parallel safe
return sha256(convert_to(jsonb_build_array(p_item.type::text, p_item.workspace, p_item.payload, p_item.document_id)::text, 'UTF8'));

-- Why an item cannot be taken, in words for who sent it; null if it can.
create function sluice._enqueue_problem(p jsonb) returns text
language plpgsql immutable as $$
declare
  v_problem text;
begin
  if jsonb_typeof(p) <> 'object' then
    return 'an item is not an object';
  end if;
  if p - array['type', 'tenant', 'workspace', 'payload', 'priority', 'delay_secs', 'suspended', 'max_attempts', 'timeout_secs',
               'document_id', 'idempotency_key', 'exclusive_key', 'resource'] <> '{}' then
    return 'unknown field: ' || left((select string_agg(k, ', ') from jsonb_object_keys(p) k
      where k not in ('type', 'tenant', 'workspace', 'payload', 'priority', 'delay_secs', 'suspended', 'max_attempts', 'timeout_secs',
                      'document_id', 'idempotency_key', 'exclusive_key', 'resource')), 200);
  end if;
  v_problem := case
    when p ->> 'type' is null or p ->> 'type' not in ('pdf_processing', 'insert', 'upload', 'scan', 'reindex', 'knowledge_injection',
                                                      'deletion', 'workspace_wipe')
      then format('type is %s; it must be one of %s', coalesce(quote_literal(left(p ->> 'type', 64)), 'missing'),
                  array_to_string(enum_range(null::sluice.task_type), ', '))
    when jsonb_typeof(p -> 'tenant') is distinct from 'string' or length(p ->> 'tenant') not between 1 and 253
      then 'tenant must be a string of 1 to 253 characters'
    when p ? 'payload' and jsonb_typeof(p -> 'payload') <> 'object' then 'payload must be a JSON object'
    when pg_column_size(p -> 'payload') > 1048576 then 'payload is over 1 MiB; put the content in a source and name it here'
  end;
  if v_problem is not null or p - array['type', 'tenant', 'payload'] = '{}' then  -- most have no more
    return v_problem;
  end if;
  return case
    when p ? 'workspace' and (jsonb_typeof(p -> 'workspace') not in ('string', 'null') or length(p ->> 'workspace') > 253)
      then 'workspace must be a string of at most 253 characters'
    when sluice._int(p -> 'priority', 0, -1000, 1000) is null then 'priority must be a whole number from -1000 to 1000'
    when p ? 'delay_secs' and (jsonb_typeof(p -> 'delay_secs') <> 'number' or (p -> 'delay_secs')::numeric not between 0 and 315360000)
      then 'delay_secs must be a number from 0 to 315360000'
    when p ? 'suspended' and jsonb_typeof(p -> 'suspended') <> 'boolean' then 'suspended must be true or false'
    when sluice._int(p -> 'max_attempts', 3, 1, 100) is null then 'max_attempts must be a whole number from 1 to 100'
    when sluice._int(p -> 'timeout_secs', 7200, 1, 86400) is null then 'timeout_secs must be a whole number from 1 to 86400'
    when p ->> 'document_id' is not null and p ->> 'document_id' !~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'
      then 'document_id must be a UUID'
    when p ? 'idempotency_key' and (jsonb_typeof(p -> 'idempotency_key') not in ('string', 'null')
                                    or length(p ->> 'idempotency_key') not between 1 and 255)
      then 'idempotency_key must be a string of 1 to 255 characters'
    when p ? 'exclusive_key' and (jsonb_typeof(p -> 'exclusive_key') not in ('string', 'null')
                                  or length(p ->> 'exclusive_key') not between 1 and 255)
      then 'exclusive_key must be a string of 1 to 255 characters'
    when p ? 'resource' and (jsonb_typeof(p -> 'resource') <> 'object' or (select count(*) from jsonb_each(p -> 'resource') f
           where f.key in ('cluster', 'namespace', 'name', 'uid') and jsonb_typeof(f.value) = 'string'
             and length(f.value #>> '{}') between 1 and 253) <> 4)
      then 'resource must be an object with cluster, namespace, name and uid, each a string of 1 to 253 characters'
  end;
end $$;

-- A keyed item, by itself: its key may be taken, by another session just now too. Answers the item with its outcome.
create function sluice._enqueue_keyed(p_item sluice._item) returns sluice._item
language plpgsql volatile set search_path = pg_catalog as $$
declare
  v_item sluice._item := p_item;
  v_key sluice.task_keys;
  v_found uuid;
begin
  if exists (select from sluice.documents d where d.document_id = v_item.document_id
                and (d.tenant, d.workspace) is distinct from (v_item.tenant, v_item.workspace)) then
    v_item.track_id := null;
    v_item.outcome := 'invalid';
    v_item.message := 'document_id is not a document of this tenant and workspace';
    return v_item;
  end if;
  if v_item.resource is not null then
    insert into sluice.task_keys (scope, kind, key, track_id)
    values (v_item.resource ->> 'cluster', 'resource', v_item.resource ->> 'uid', v_item.track_id)
    on conflict (scope, kind, key) do nothing;
    if not found then
      select k.track_id into strict v_item.track_id from sluice.task_keys k
       where k.scope = v_item.resource ->> 'cluster' and k.kind = 'resource' and k.key = v_item.resource ->> 'uid';
      v_item.outcome := 'existing';
      return v_item;
    end if;
  end if;
  if v_item.idempotency_key is not null then
    insert into sluice.task_keys (scope, kind, key, track_id, content_hash)
    values (v_item.tenant, 'idempotency', v_item.idempotency_key, v_item.track_id, sluice._content_hash(v_item))
    on conflict (scope, kind, key) do nothing;
    if not found then
      delete from sluice.task_keys k where k.track_id = v_item.track_id and k.scope = v_item.resource ->> 'cluster'
         and k.kind = 'resource' and k.key = v_item.resource ->> 'uid';
      select k.track_id, k.content_hash into strict v_key.track_id, v_key.content_hash from sluice.task_keys k
       where k.scope = v_item.tenant and k.kind = 'idempotency' and k.key = v_item.idempotency_key;
      v_item.track_id := v_key.track_id;
      if v_key.content_hash = sluice._content_hash(v_item) then
        v_item.outcome := 'existing';
      else
        v_item.outcome := 'conflict_idempotency';
        v_item.message := 'the idempotency key was used for other content; use a new key, or send the same content';
      end if;
      return v_item;
    end if;
  end if;

  -- Only now: the same content sent again must not differ by a document that we made up.
  if v_item.document_id is null
     and (v_item.type in ('pdf_processing', 'upload') or v_item.type = 'insert' and v_item.payload ?| array['text', 'url']) then
    v_item.document_id := gen_random_uuid();
  end if;
  insert into sluice.tasks (track_id, id, lane_id, type, priority, ready, suspended, max_attempts, timeout_secs, available_at,
                            workspace, payload, document_id, exclusive_hash)
  values (v_item.track_id, nextval('sluice.task_ids'), v_item.lane_id, v_item.type, v_item.priority,
          not v_item.suspended and v_item.delay_secs = 0, v_item.suspended, v_item.max_attempts, v_item.timeout_secs,
          now() + make_interval(secs => v_item.delay_secs), v_item.workspace, v_item.payload, v_item.document_id, v_item.exclusive_hash)
  on conflict (exclusive_hash) where exclusive_hash is not null do nothing;
  if not found then
    delete from sluice.task_keys k
     where k.track_id = v_item.track_id
       and (k.scope, k.kind, k.key) in ((v_item.tenant, 'idempotency', v_item.idempotency_key),
                                        (v_item.resource ->> 'cluster', 'resource', v_item.resource ->> 'uid'));
    select t.track_id into v_found from sluice.tasks t where t.exclusive_hash = v_item.exclusive_hash;
    v_item.track_id := v_found;  -- null if it ended just now: the caller may try again
    v_item.outcome := 'conflict_active';
    v_item.message := 'a task with this exclusive key is active; wait for it, or cancel it';
    return v_item;
  end if;

  if v_item.document_id is not null then
    insert into sluice.documents (document_id, tenant, workspace, status, task_id, pdf_status)
    values (v_item.document_id, v_item.tenant, v_item.workspace, 'pending', v_item.track_id,
            case v_item.type when 'pdf_processing' then 'pending' end)
    on conflict (document_id) do update
       set status = 'pending', stage = null, failure_class = null, task_id = excluded.task_id, updated_at = now(),
           pdf_status = coalesce(excluded.pdf_status, documents.pdf_status)
     where documents.tenant = excluded.tenant and documents.workspace is not distinct from excluded.workspace;
    if not found then
      perform sluice._bad_input(format('document %s was made by another tenant just now', v_item.document_id), 'send it again');
    end if;
  end if;
  if v_item.resource is not null then
    insert into sluice.mirrors (cluster, namespace, name, uid, track_id)
    values (v_item.resource ->> 'cluster', v_item.resource ->> 'namespace', v_item.resource ->> 'name', v_item.resource ->> 'uid',
            v_item.track_id)
    returning mirror_id into v_key.key;
    update sluice.tasks set mirror_id = v_key.key::bigint where track_id = v_item.track_id;
    perform sluice._dirty(array[v_key.key::bigint]);
  end if;
  v_item.outcome := 'created';
  return v_item;
end $$;

-- Takes tasks in: {type, tenant, workspace, payload, priority, delay_secs, suspended, max_attempts, timeout_secs, document_id,
-- idempotency_key, exclusive_key, resource: {cluster, namespace, name, uid}}, at most 1,000. Answers one row an item, in
-- their order: `created`, `existing`, `conflict_idempotency`, `conflict_active` or `invalid`, with a message that says
-- what to do. Call `wake` after the commit.
create function sluice.enqueue_many(p_tasks jsonb)
returns table (item int, track_id uuid, outcome text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_items sluice._item[];
  v_lanes int[];
  v_lane record;
  v_at int;
begin
  perform sluice._check_isolation();
  if jsonb_typeof(p_tasks) is distinct from 'array' then
    perform sluice._bad_input('the tasks are not a JSON array', 'send an array of objects');
  elsif jsonb_array_length(p_tasks) > 1000 then
    raise exception '% tasks in one call', jsonb_array_length(p_tasks)
      using errcode = '54000', hint = 'send at most 1000 in one call';
  end if;

  v_items := array(
    select row(i.n, case when c.problem is not null then 'invalid' end, c.problem, sluice._uuid_v7(), f.type, f.tenant, f.class, l.lane_id,
               a.item ->> 'workspace', coalesce(a.item -> 'payload', '{}'), case when a.item ? 'priority' then (a.item -> 'priority')::int else 0 end,
               coalesce((a.item -> 'delay_secs')::float8, 0), coalesce((a.item -> 'suspended')::boolean, false),
               case when a.item ? 'max_attempts' then (a.item -> 'max_attempts')::int else 3 end, case when a.item ? 'timeout_secs' then (a.item -> 'timeout_secs')::int else 7200 end,
               case when c.problem is not null then null
                    when a.item ->> 'document_id' is not null then (a.item ->> 'document_id')::uuid end,
               a.item ->> 'idempotency_key',
               case when a.item ->> 'exclusive_key' is not null then sluice._hash(a.item ->> 'tenant', a.item ->> 'exclusive_key') end,
               a.item -> 'resource',
               a.item ?| array['document_id', 'idempotency_key', 'exclusive_key', 'resource'] or f.type in ('pdf_processing', 'upload')
               or coalesce(f.type = 'insert' and a.item -> 'payload' ?| array['text', 'url'], false)
              )::sluice._item
      from jsonb_array_elements(p_tasks) with ordinality i (item, n)
     cross join lateral (select sluice._enqueue_problem(i.item) as problem offset 0) c
     cross join lateral (select case when c.problem is null then i.item else '{}' end as item) a
     cross join lateral (select case when c.problem is null then (a.item ->> 'type')::sluice.task_type end as type,
                                case when c.problem is null then a.item ->> 'tenant' end as tenant,
                                case when c.problem is null then sluice._class_of((a.item ->> 'type')::sluice.task_type) end as class) f
      left join sluice.tenant_lanes l on l.tenant = f.tenant and l.class = f.class
     order by i.n);
  for v_lane in
    select i.tenant, i.class, array_agg(i.position) as items from unnest(v_items) i
     where i.outcome is null and i.lane_id is null group by i.tenant, i.class order by i.tenant, i.class
  loop
    v_at := sluice._lane(v_lane.tenant, v_lane.class);
    for v_n in 1 .. cardinality(v_lane.items) loop
      v_items[v_lane.items[v_n]].lane_id := v_at;
    end loop;
  end loop;

  v_lanes := array(select distinct i.lane_id from unnest(v_items) i where i.outcome is null);
  perform sluice._share_lanes(v_lanes);
  insert into sluice.tasks (track_id, id, lane_id, type, priority, ready, suspended, max_attempts, timeout_secs, available_at,
                            workspace, payload)
  select i.track_id, nextval('sluice.task_ids'), i.lane_id, i.type, i.priority, not i.suspended and i.delay_secs = 0, i.suspended,
         i.max_attempts, i.timeout_secs, now() + make_interval(secs => i.delay_secs), i.workspace, i.payload
    from unnest(v_items) i where i.outcome is null and not i.is_keyed;
  -- In the order of their keys, so that two batches with the same ones wait for each other in one direction only; those with
  -- nothing but a document last, since an end holds exclusive keys while it waits for documents.
  for v_at in
    select i.position from unnest(v_items) i where i.outcome is null and i.is_keyed
     order by num_nonnulls(i.resource, i.idempotency_key, i.exclusive_hash) = 0, i.resource ->> 'cluster', i.resource ->> 'uid', i.tenant,
              i.idempotency_key, i.exclusive_hash, i.document_id, i.position
  loop
    v_items[v_at] := sluice._enqueue_keyed(v_items[v_at]);
  end loop;
  perform sluice._wake_lanes(v_lanes, false, true);
  return query
  select i.position, case when i.outcome = 'invalid' then null else i.track_id end, coalesce(i.outcome, 'created'), i.message
    from unnest(v_items) i;
end $$;

-- One task. Bad input is an error (22023) here, since there are no other items to lose.
create function sluice.enqueue(p_type text, p_tenant text, p_payload jsonb default '{}', p_options jsonb default '{}')
returns table (track_id uuid, outcome text, message text)
language plpgsql volatile security definer set search_path = pg_catalog as $$
#variable_conflict use_column
begin
  if jsonb_typeof(p_options) is distinct from 'object' then
    perform sluice._bad_input('the options are not a JSON object', 'send an object, or leave it out');
  end if;
  select e.track_id, e.outcome, e.message into track_id, outcome, message
    from sluice.enqueue_many(jsonb_build_array(
           p_options || jsonb_build_object('type', p_type, 'tenant', p_tenant, 'payload', p_payload))) e;
  if outcome = 'invalid' then
    perform sluice._bad_input(message, 'correct it and send it again');
  end if;
  return next;
end $$;
