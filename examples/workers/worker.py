#!/usr/bin/env python3
"""A complete worker in Python. DATABASE_URL and SLUICE_POOL say where; SIGTERM or Ctrl-C ends it when its task is done."""
import json, os, select, signal, threading, time
import psycopg2  # 2.9 or newer

POOL, BATCH = os.environ.get("SLUICE_POOL", "default"), 10
held = {}                   # (track_id, attempt) -> None, or why it must stop: cancel, release, lost
sequence, lease_secs = 0, 3
over = threading.Event()

class Stop(Exception):
    pass

def connect():
    connection = psycopg2.connect(os.environ["DATABASE_URL"])
    connection.autocommit = True
    return connection

def call(connection, sql, *values):
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall()

def keep(worker):
    """Renews all leases every third of one, at most 2 s apart, and hears what is to stop. On a connection of its own."""
    try:
        connection = connect()
        while not over.is_set() or held:
            newest, attempts = sequence, list(held)  # in this order: what older claims took is in `held` by now
            ids, numbers = [a[0] for a in attempts], [a[1] for a in attempts]
            for track_id, number, answer in call(connection, "select track_id::text, attempt, answer from sluice.heartbeat"
                                                 "(%s, %s, %s::uuid[], %s::int[])", worker, newest, ids, numbers):
                if answer in ("cancel", "release", "lost") and (track_id, number) in held:
                    held[track_id, number] = answer
            time.sleep(min(2, lease_secs / 3))
    finally:
        over.set()  # without leases there is nothing to work on

def handle(cursor, attempt, payload):
    """The work goes here. What it writes through `cursor` is kept or dropped together with the end of the task."""
    until = time.monotonic() + payload.get("sleep_secs", 0)
    while time.monotonic() < until:
        if held[attempt]:
            raise Stop  # looked at often enough to stop soon
        time.sleep(0.05)
    return {"slept_secs": payload.get("sleep_secs", 0)}

def run(connection, attempt, payload):
    try:
        with connection, connection.cursor() as cursor:  # one transaction: committed at the end, or rolled back by what is raised
            result = handle(cursor, attempt, payload)
            cursor.execute("select sluice.complete(%s, %s, %s)", (*attempt, json.dumps(result)))
            if held[attempt] or cursor.fetchone()[0] != "completed":
                raise Stop
    except Stop:
        if held[attempt] == "release":
            call(connection, "select outcome from sluice.release(array[%s::uuid], array[%s])", *attempt)
        else:
            call(connection, "select sluice.stopped(%s, %s)", *attempt)  # says `lost` of a lost one, and changes nothing
    except Exception as error:
        call(connection, "select sluice.fail(%s, %s, 'unknown', %s)", *attempt, str(error).replace("\0", ""))
    del held[attempt]

def main():
    global sequence, lease_secs
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    connection, listener, next_upkeep = connect(), connect(), 0
    listener.cursor().execute("listen sluice_wake")
    register = "select sluice.register_worker(%s, 1, 'worker.py', p_worker => %s)::text"
    worker = call(connection, register, POOL, None)[0][0]
    keeper = threading.Thread(target=keep, args=(worker,))
    keeper.start()
    while not over.is_set():
        sequence += 1
        try:
            tasks = call(connection, "select track_id::text, attempt, payload, lease_secs from sluice.claim(%s, %s, %s, %s)",
                         worker, sequence, BATCH, BATCH)
        except psycopg2.errors.NoDataFound:  # our row is gone
            call(connection, register, POOL, worker)
            continue
        for track_id, number, _, lease_secs in tasks:
            held[track_id, number] = None
        for track_id, number, payload, _ in tasks:
            if over.is_set():
                held[track_id, number] = "release"
            run(connection, (track_id, number), payload)
        if time.monotonic() >= next_upkeep:
            next_upkeep = time.monotonic() + 2
            call(connection, "select sluice.promote(), (select count(*) from sluice.reap())")
        if not tasks and select.select([listener], [], [], 2)[0]:
            listener.poll()
            listener.notifies.clear()
    keeper.join()

if __name__ == "__main__":
    main()
