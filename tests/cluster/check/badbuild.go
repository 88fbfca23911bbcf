package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// badBuild is something that is wrong before there is a binary.
type badBuild struct {
	name string
	// goVersion is what the only Go in PATH says of itself; none is there when it is empty.
	goVersion string
	minor     string
	words     string
}

var badBuilds = []badBuild{
	{name: "Go missing", minor: "1.36", words: "Go is missing"},
	{name: "Go too old", goVersion: "go1.20.1", minor: "1.36", words: "Go 1.20.1 is too old"},
	{name: "a minor that is not offered", goVersion: "go1.20.1", minor: "1.33", words: "1.34, 1.35 or 1.36"},
}

// run calls the build with a PATH that has its tools and the Go that is asked for, nothing else.
func (b badBuild) run(ctx context.Context, binary string) error {
	sources, err := os.ReadFile(filepath.Join(filepath.Dir(binary), "sources"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bad-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, store := filepath.Join(dir, "path"), filepath.Join(dir, "store")
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	for _, tool := range []string{"sh", "dirname", "awk", "sed", "sort", "head", "tr"} {
		real, err := exec.LookPath(tool)
		if err != nil {
			return err
		}
		if err := os.Symlink(real, filepath.Join(path, tool)); err != nil {
			return err
		}
	}
	if b.goVersion != "" {
		if err := os.WriteFile(filepath.Join(path, "go"), []byte("#!/bin/sh\necho "+b.goVersion+"\n"), 0o755); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(strings.TrimSpace(string(sources)), "build.sh"))
	cmd.Env = append(os.Environ(), "PATH="+path, "CLUSTER_STORE="+store, "K8S="+b.minor)
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("exit code 0 was given: %s (%v)", output, err)
	}
	if err := expect(strings.Contains(string(output), b.words), "%q is not in %q", b.words, output); err != nil {
		return err
	}
	_, err = os.Stat(store)
	return expect(errors.Is(err, os.ErrNotExist), "the build left files")
}
