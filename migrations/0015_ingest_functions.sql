-- The steps of schema `ingest` that keep an invariant, each one call; everything else is plain reading and inserting.

set local role sluice_owner;

-- Everything that adds to the graph of a workspace or takes from it holds this until the commit: what nobody supports can
-- only be told while nobody adds support. Without waiting, so that the caller can hear a cancel between two tries.
create function ingest.try_lock_graph(p_tenant text, p_workspace text) returns boolean
language sql volatile security definer set search_path = pg_catalog as $$
  select pg_try_advisory_xact_lock(1768842867, hashtext(length(p_tenant) || ':' || p_tenant || p_workspace))
$$;

-- Takes back the published generation of a document and what only it supports. The caller holds the graph's lock.
create function ingest.drop_generation(p_document_id uuid, p_tenant text, p_workspace text)
returns table (versions int, chunks int, entities int, relations int)
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_version bigint;
  v_items uuid[];
begin
  versions := 0; chunks := 0; entities := 0; relations := 0;
  delete from ingest.document_versions v
   where v.document_id = p_document_id and v.tenant = p_tenant and v.workspace = p_workspace
  returning v.version_id into v_version;
  if v_version is null then
    return next;
    return;
  end if;
  versions := 1;
  delete from ingest.chunks c where c.version_id = v_version;
  get diagnostics chunks = row_count;
  delete from ingest.embeddings e where e.version_id = v_version;
  with gone as (delete from ingest.provenance p where p.version_id = v_version returning p.item_id)
  select array_agg(distinct g.item_id) into v_items from gone g;
  -- In statements of their own: they must see what is gone.
  delete from ingest.relations r
   where r.relation_id = any (v_items) and not exists (select from ingest.provenance p where p.item_id = r.relation_id);
  get diagnostics relations = row_count;
  delete from ingest.entities e
   where e.entity_id = any (v_items) and not exists (select from ingest.provenance p where p.item_id = e.entity_id);
  get diagnostics entities = row_count;
  return next;
end $$;

-- A document as a whole: its generation, contents and artifacts. The caller holds the graph's lock. An insert that is about
-- to publish looks for its content under the same lock: it comes before this, or finds it gone.
create function ingest.drop_document(p_document_id uuid, p_tenant text, p_workspace text)
returns table (contents int, versions int, chunks int, entities int, relations int, artifacts int)
language plpgsql volatile security definer set search_path = pg_catalog as $$
begin
  delete from ingest.contents c where c.document_id = p_document_id and c.tenant = p_tenant and c.workspace = p_workspace;
  get diagnostics contents = row_count;
  select d.versions, d.chunks, d.entities, d.relations into versions, chunks, entities, relations
    from ingest.drop_generation(p_document_id, p_tenant, p_workspace) d;
  delete from ingest.artifacts a where a.document_id = p_document_id and a.tenant = p_tenant and a.workspace = p_workspace;
  get diagnostics artifacts = row_count;
  return next;
end $$;

-- With a publish: older contents of the document, and artifacts that the generation was not made of; unless a newer content
-- is there, for which some of them may have been paid just now.
create function ingest.drop_outdated(p_document_id uuid, p_tenant text, p_workspace text, p_content_id bigint, p_keys bytea[]) returns void
language plpgsql volatile security definer set search_path = pg_catalog as $$
begin
  delete from ingest.contents c
   where c.document_id = p_document_id and c.tenant = p_tenant and c.workspace = p_workspace and c.content_id < p_content_id;
  delete from ingest.artifacts a
   where a.document_id = p_document_id and a.tenant = p_tenant and a.workspace = p_workspace
     and not exists (select from ingest.contents c where c.document_id = p_document_id and c.content_id > p_content_id)
     and not exists (select from unnest(p_keys) k where k = a.artifact_key);
end $$;

-- What late attempts left of documents that are deleted, at most p_limit documents a call. What resists goes to the
-- quarantine, and is tried again in an hour; once it gives way, it is resolved.
create function ingest.sweep(p_limit int default 100) returns table (swept int, quarantined int)
language plpgsql volatile security definer set search_path = pg_catalog as $$
declare
  v_left record;
begin
  swept := 0; quarantined := 0;
  for v_left in
    select distinct on (a.document_id) a.document_id, a.tenant, a.workspace
      from ingest.artifacts a
     where not exists (select from sluice.documents d where d.document_id = a.document_id)
       and not exists (select from ingest.contents c where c.document_id = a.document_id)
       and a.created_at < now() - interval '10 minutes'
       and not exists (select from ingest.compensation_quarantine q
                        where q.document_id = a.document_id and q.resolved_at is null and q.created_at > now() - interval '1 hour' * q.tries)
     order by a.document_id limit least(greatest(p_limit, 1), 1000)
  loop
    begin
      delete from ingest.artifacts a where a.document_id = v_left.document_id;
      update ingest.compensation_quarantine q set resolved_at = now() where q.document_id = v_left.document_id and q.resolved_at is null;
      swept := swept + 1;
    exception when lock_not_available or deadlock_detected or raise_exception or integrity_constraint_violation then
      insert into ingest.compensation_quarantine (document_id, tenant, reason)
      values (v_left.document_id, v_left.tenant, left(sqlerrm, 1024))
      on conflict (document_id) do update
         set reason = excluded.reason, tries = compensation_quarantine.tries + 1, resolved_at = null;
      quarantined := quarantined + 1;
    end;
  end loop;
  return next;
end $$;

-- Workers add; they take away and change only through the functions above.
grant select, insert on ingest.contents, ingest.document_versions, ingest.chunks, ingest.embeddings, ingest.entities, ingest.relations,
  ingest.provenance, ingest.artifacts to sluice_worker;
grant update (kind, description) on ingest.entities to sluice_worker;   -- a given fact says it better
grant update (description) on ingest.relations to sluice_worker;
grant usage on sequence ingest.version_ids to sluice_worker;
grant execute on function
  ingest.try_lock_graph(text, text), ingest.drop_generation(uuid, text, text), ingest.drop_document(uuid, text, text),
  ingest.drop_outdated(uuid, text, text, bigint, bytea[]), ingest.sweep(int)
to sluice_worker;

grant select on all tables in schema ingest to sluice_reader;
grant select on ingest.compensation_quarantine to sluice_worker, sluice_operator;  -- the queue's metrics
