package check

import (
	"errors"
	"testing"
)

func TestMissedTargetFailsOnlyWhenStrict(t *testing.T) {
	rows := []struct {
		err    error
		strict bool
		word   string
		code   int
	}{
		{nil, true, "passed", 0},
		{target(true, "late"), true, "passed", 0},
		{target(false, "late"), false, "missed", 0},
		{target(false, "late"), true, "missed", 1},
		{errors.New("wrong"), false, "FAILED", 1},
	}
	for _, row := range rows {
		r := &report{figures: map[string]float64{}, strict: row.strict}
		r.add(outcome{name: "one that passes"})
		r.add(outcome{name: "the row's", err: row.err})
		if word, code := r.outcomes[1].word(), r.print(); word != row.word || code != row.code {
			t.Errorf("%v, strict %v: %s and %d, not %s and %d", row.err, row.strict, word, code, row.word, row.code)
		}
	}
}
