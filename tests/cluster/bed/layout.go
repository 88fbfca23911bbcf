package bed

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// layout names every file of a cluster. All of them are in its state directory.
type layout struct{ dir string }

func (l layout) settings() string           { return filepath.Join(l.dir, "cluster.json") }
func (l layout) lock() string               { return filepath.Join(l.dir, "lock") }
func (l layout) pids() string               { return filepath.Join(l.dir, "pids") }
func (l layout) pki() string                { return filepath.Join(l.dir, "pki") }
func (l layout) pkiFile(name string) string { return filepath.Join(l.pki(), name) }
func (l layout) etcd() string               { return filepath.Join(l.dir, "etcd") }
func (l layout) audit() string              { return filepath.Join(l.dir, "audit") }
func (l layout) auditLog() string           { return filepath.Join(l.audit(), "audit.log") }
func (l layout) images() string             { return filepath.Join(l.dir, "images.json") }
func (l layout) logs() string               { return filepath.Join(l.dir, "logs") }
func (l layout) log(process string) string  { return filepath.Join(l.logs(), process+".log") }
func (l layout) nodes() string              { return filepath.Join(l.dir, "nodes") }
func (l layout) node(name string) string    { return filepath.Join(l.nodes(), name) }
func (l layout) socket() string             { return filepath.Join(l.dir, "control.sock") }
func (l layout) probe() string              { return filepath.Join(l.dir, "probe") }
func (l layout) clients() string            { return filepath.Join(l.dir, "clients") }
func (l layout) client(name string) string {
	return filepath.Join(l.clients(), name+".kubeconfig")
}

// AdminKubeconfig is the file by which the admin of the cluster in dir reaches it.
func AdminKubeconfig(dir string) string { return filepath.Join(dir, "admin.kubeconfig") }

// DefaultDir is the state directory when none is named.
func DefaultDir() string {
	if dir := os.Getenv("CLUSTER_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "cluster")
}

// settings is what later commands must know of a cluster; kept as cluster.json.
type settings struct {
	// MadeDir says that `up` made the directory, so that `down` removes it.
	MadeDir bool   `json:"made_dir"`
	Pid     int    `json:"pid"`
	Version string `json:"version"`
	Server  string `json:"server"`
	Slot    int    `json:"slot"`
}

func (l layout) readSettings() (settings, error) {
	var s settings
	text, err := os.ReadFile(l.settings())
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

func (l layout) writeSettings(s settings) error { return writeJSON(l.settings(), s) }

// create makes the directories inside the state directory.
func (l layout) create() error {
	for _, dir := range []string{l.pki(), l.etcd(), l.audit(), l.logs(), l.nodes(), l.clients()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return os.Chmod(l.etcd(), 0o700)
}

// removeFiles deletes everything that is ours but the lock, which whoever calls this holds.
func (l layout) removeFiles() error {
	for _, path := range []string{
		l.socket(), l.pki(), l.etcd(), l.audit(), l.logs(), l.nodes(), l.clients(), l.images(),
		AdminKubeconfig(l.dir), l.probe(), l.pids(), l.settings(),
	} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// removeDir gives the directory back: it goes when we made it and nobody keeps files of their own there.
func (l layout) removeDir(made bool) {
	os.Remove(l.lock())
	if made {
		os.Remove(l.dir)
	}
}

// writeJSON replaces a file in one step, so that a reader sees the old text or the new.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	next := path + ".next"
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}
