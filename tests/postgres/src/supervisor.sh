# Runs what its owner asks for and outlives it. Each line read is the NAME of a NAME.cmd to run; end of
# file means that the owner is gone, however it died: then all is stopped and the directory removed.
# usage: sh -c SCRIPT supervisor DIRECTORY STOP-SIGNAL
dir=$1
stop_signal=$2

# What the owner inherited (a lock, another run's pipe) must not be held open by a daemon.
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
cd /

signal_running() {
    for pid_file in "$dir"/*.pid; do
        if [ -e "$pid_file" ] && [ ! -e "${pid_file%.pid}.exit" ]; then
            kill -s "$1" "$(cat "$pid_file")" 2>/dev/null
        fi
    done
}

any_running() {
    for pid_file in "$dir"/*.pid; do
        if [ -e "$pid_file" ] && [ ! -e "${pid_file%.pid}.exit" ]; then return 0; fi
    done
    return 1
}

while read -r name; do
    # The watcher's own stderr is not ours: ours is the lock that says a supervisor lives.
    {
        sh "$dir/$name.cmd" >>"$dir/$name.log" 2>&1 &
        echo $! >"$dir/$name.pid.new"
        mv "$dir/$name.pid.new" "$dir/$name.pid"
        wait $!
        echo $? >"$dir/$name.exit.new"
        mv "$dir/$name.exit.new" "$dir/$name.exit"
    } </dev/null >/dev/null 2>&1 &
    until [ -e "$dir/$name.pid" ] || [ ! -d "$dir" ]; do sleep 0.01; done
done

signal_running "$stop_signal"
waited=0
while any_running && [ $waited -lt 200 ]; do
    sleep 0.05
    waited=$((waited + 1))
done
signal_running KILL

# A postmaster that was killed leaves its System V segment; line 7 of its file is "key id".
postmaster_file=$dir/data/postmaster.pid
if [ -e "$postmaster_file" ]; then
    segment=$(sed -n 7p "$postmaster_file")
    ipcrm -m "${segment##* }" 2>/dev/null
fi
rm -rf "$dir"
