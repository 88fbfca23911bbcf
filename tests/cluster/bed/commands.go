package bed

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Usage lists all commands.
const Usage = `cluster: a real Kubernetes of processes on one Linux machine

  cluster up [--foreground] [--nodes N] [--api-port P]   start; it runs in the background unless told otherwise
             [--with PID] [--reuse]                      end with a process; make do with the one that runs already
  cluster down                                           end it and remove everything of it
  cluster status [--json]                                processes, memory, clients
  cluster load IMAGE=BINARY…                             say which program an image name stands for
  cluster kubeconfig --user U [--group G]… [--through C] print a kubeconfig for any user, by a client's own line if named
  cluster stop|cont|kill|restart PROCESS                 freeze, thaw, kill or restart one process
  cluster net delay MS|blackhole|cut|ok [--client C]     break the line between clients and the API server
  cluster node add|kill|freeze|thaw NAME                 add a node; lose one, with all that runs on it
  cluster check [--long] [--strict]                      prove that all of this works

  cluster kubectl|helm ARGUMENTS                         the real tools
  cluster etcd|kube-apiserver|kube-controller-manager|kube-scheduler|node ARGUMENTS

Every command of the first group takes --dir D, the directory that holds all of a cluster's state
(default $CLUSTER_DIR, else ` + "`cluster`" + ` in the directory for temporary files).
`

// Main runs one command of the bed and gives its exit code.
func Main(name string, args []string) int {
	if name == probeVerb && len(args) == 1 {
		return probeNamespaces(args[0])
	}
	dir, rest, err := splitDir(args)
	if err == nil {
		err = run(name, dir, rest)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, Usage)
		return 2
	case errors.Is(err, errReported):
		return 1
	}
	fmt.Fprintln(os.Stderr, "cluster:", err)
	return 1
}

var (
	errUsage    = errors.New("usage")
	errReported = errors.New("reported already")
)

func run(name, dir string, args []string) error {
	switch name {
	case "up":
		return up(dir, args)
	case "down":
		return down(dir)
	case "load":
		pairs, err := imagePairs(args)
		if err != nil {
			return err
		}
		args = pairs
	case "status", "kubeconfig", "stop", "cont", "kill", "restart", "net", "node":
	case "help", "-h", "--help":
		fmt.Print(Usage)
		return nil
	default:
		return errUsage
	}
	text, err := ask(dir, append([]string{name}, args...)...)
	fmt.Print(text)
	return err
}

// splitDir takes --dir out of the arguments, wherever it stands.
func splitDir(args []string) (string, []string, error) {
	dir := DefaultDir()
	var rest []string
	for i := 0; i < len(args); i++ {
		value, joined := strings.CutPrefix(args[i], "--dir=")
		switch {
		case joined:
			dir = value
		case args[i] == "--dir" && i+1 < len(args):
			i++
			dir = args[i]
		default:
			rest = append(rest, args[i])
		}
	}
	dir, err := filepath.Abs(dir)
	return dir, rest, err
}

func up(dir string, args []string) error {
	o := options{dir: dir}
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	foreground := flags.Bool("foreground", false, "")
	flags.IntVar(&o.nodes, "nodes", 1, "")
	flags.IntVar(&o.apiPort, "api-port", 0, "")
	flags.IntVar(&o.companion, "with", 0, "")
	reuse := flags.Bool("reuse", false, "")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return errUsage
	}
	if o.nodes < 0 || o.nodes > maxNodes {
		return fmt.Errorf("a cluster has 0 to %d nodes, not %d", maxNodes, o.nodes)
	}
	if o.apiPort < 0 || o.apiPort > 65535 {
		return fmt.Errorf("%d is not a port: use 1 to 65535", o.apiPort)
	}
	if _, err := startTime(o.companion); o.companion != 0 && err != nil {
		return fmt.Errorf("there is no process %d for the cluster to end with", o.companion)
	}
	if err := closeInherited(); err != nil {
		return err
	}
	if *foreground {
		return runForeground(o)
	}
	err := runDetached(o, args)
	if *reuse && err != nil && inUse(layout{dir}) {
		return awaitOther(dir)
	}
	return err
}

// awaitOther waits until the cluster that someone else starts in the directory can be used.
func awaitOther(dir string) error {
	deadline := time.Now().Add(upTimeout)
	for {
		_, err := ask(dir, "status")
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// down asks the supervisor to end; when there is none any more, it does the work itself.
func down(dir string) error {
	l := layout{dir}
	facts, err := l.readSettings()
	if err != nil {
		return fmt.Errorf("no cluster runs in %s", dir)
	}
	start, alive := startTime(facts.Pid)
	if _, err := ask(dir, "down"); err == nil {
		for alive == nil {
			now, err := startTime(facts.Pid)
			if err != nil || now != start {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	}
	lock, err := takeLock(l)
	if err != nil {
		return fmt.Errorf("the supervisor of the cluster in %s (process %d) does not answer: kill it, then try again", dir, facts.Pid)
	}
	defer lock.Close()
	if err := l.sweep(); err != nil {
		return err
	}
	l.removeDir(facts.MadeDir)
	return nil
}

// imagePairs checks IMAGE=BINARY arguments. A name without a tag means latest, as everywhere.
func imagePairs(args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, errors.New("usage: cluster load IMAGE=BINARY…")
	}
	var pairs []string
	for _, arg := range args {
		image, binary, found := strings.Cut(arg, "=")
		if !found || image == "" || binary == "" {
			return nil, fmt.Errorf("%q is not IMAGE=BINARY", arg)
		}
		if !strings.Contains(image[strings.LastIndexByte(image, '/')+1:], ":") {
			image += ":latest"
		}
		binary, err := filepath.Abs(binary)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(binary)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", image, err)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return nil, fmt.Errorf("image %s: %s is not a program", image, binary)
		}
		pairs = append(pairs, image+"="+binary)
	}
	return pairs, nil
}
