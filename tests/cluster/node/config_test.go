package node

import (
	"strings"
	"testing"
)

func TestBadArgumentsAreAnsweredByOneSentence(t *testing.T) {
	good := []string{
		"--kubeconfig", "k", "--name", "n", "--root", "r", "--images", "i", "--port", "1",
		"--pod-network", "10.1.0.0/16", "--api", "127.0.0.1:1",
	}
	if _, err := parse(good); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--name is missing":       {"--kubeconfig", "k", "--root", "r", "--images", "i"},
		"--pod-network must be":   append(good, "--pod-network", "many"),
		"--api: the API server's": append(good, "--api", "localhost"),
		"--cluster-dns is own or": append(good, "--cluster-dns", "theirs"),
		"--port is missing":       append(good, "--port", "0"),
		"see its usage above":     append(good, "--what"),
	} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v was answered by %v, not %q", args, err, want)
		}
	}
}
