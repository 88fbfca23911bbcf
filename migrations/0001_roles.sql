-- The roles. They belong to the server, not to the database, so each is made only where it is missing.
--
-- sluice_owner owns everything and nobody logs in as it; the schema's functions run with its rights. The other three
-- are granted to login roles: a worker's process, the operator and the HTTP API, and whoever only reads.

do $$
declare
  v_role text;
begin
  foreach v_role in array array['sluice_owner', 'sluice_worker', 'sluice_operator', 'sluice_reader'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
      begin
        execute format('create role %I nologin', v_role);
      exception when duplicate_object or unique_violation then
        null;  -- another migration, of this database or of another one, was first
      end;
    end if;
  end loop;
end $$;

-- Who migrates must be able to give things to the owner; a superuser is, by being one.
do $$
begin
  if not pg_catalog.pg_has_role(current_user, 'sluice_owner', 'usage') then
    execute format('grant sluice_owner to %I', current_user);
  end if;
end $$;

create schema if not exists sluice;
alter schema sluice owner to sluice_owner;
alter table if exists sluice.migrations owner to sluice_owner;  -- made by `sluice migrate` before this file
revoke all on schema sluice from public;
grant usage on schema sluice to sluice_worker, sluice_operator, sluice_reader;
-- For all schemas: of one schema alone, defaults can only add to what PUBLIC has.
alter default privileges for role sluice_owner revoke execute on functions from public;
