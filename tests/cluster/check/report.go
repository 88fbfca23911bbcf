package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// outcome of one check.
type outcome struct {
	name    string
	took    time.Duration
	skipped string
	err     error
}

// missed is a target of time or memory that was not met: what works late on a busy machine works.
type missed struct{ error }

// target answers a missed one unless it is met.
func target(met bool, format string, args ...any) error {
	if met {
		return nil
	}
	return missed{fmt.Errorf(format, args...)}
}

// report collects outcomes and figures; checks run in parallel.
type report struct {
	mu       sync.Mutex
	outcomes []outcome
	figures  map[string]float64
	// Whether a missed target fails.
	strict bool
}

func (r *report) add(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes = append(r.outcomes, o)
	fmt.Fprintln(os.Stderr, o.line())
}

func (r *report) figure(name string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.figures[name] = value
}

// time runs a check and notes how it went.
func (r *report) time(name string, check func() error) {
	begun := time.Now()
	err := check()
	r.add(outcome{name: name, took: time.Since(begun), err: err})
}

func (o outcome) word() string {
	var late missed
	switch {
	case errors.As(o.err, &late):
		return "missed"
	case o.err != nil:
		return "FAILED"
	case o.skipped != "":
		return "skipped"
	}
	return "passed"
}

func (o outcome) line() string {
	why := o.skipped
	if o.err != nil {
		why = strings.ReplaceAll(o.err.Error(), "\n", "\n           ")
	}
	return fmt.Sprintf("%-8s %6.1f s  %s", o.word(), o.took.Seconds(), o.name) + suffix(why)
}

func suffix(why string) string {
	if why == "" {
		return ""
	}
	return "\n           " + why
}

// print writes the table, the closing line and the JSON line, and gives the exit code.
func (r *report) print() int {
	count := map[string]int{}
	fmt.Println()
	for _, o := range r.outcomes {
		count[o.word()]++
		fmt.Println(o.line())
	}
	fmt.Println()
	for _, name := range []string{"build_s", "ready_s", "rollout_s", "scale_down_s", "rss_mb"} {
		fmt.Printf("%-14s %8.1f\n", name, r.figures[name])
	}
	closing := fmt.Sprintf("%d passed, %d failed", count["passed"], count["FAILED"])
	if count["skipped"] > 0 {
		closing += fmt.Sprintf(", %d skipped", count["skipped"])
	}
	fmt.Printf("\n%s\n", closing)
	if count["missed"] > 0 {
		fmt.Printf("%d missed a target of time or memory, which fails with --strict\n", count["missed"])
	}
	r.figures["targets_missed"] = float64(count["missed"])
	r.figures["checks_passed"] = float64(count["passed"])
	r.figures["checks_failed"] = float64(count["FAILED"])
	line, _ := json.Marshal(r.figures)
	fmt.Println(string(line))
	if count["FAILED"] > 0 || count["passed"] == 0 || r.strict && count["missed"] > 0 {
		return 1
	}
	return 0
}
