package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Commands reach the supervisor over a socket in the state directory: a list of words there, a text back.

// socketAddress is short however long the directory's name is: a socket's may have 107 bytes.
// The file is the open directory; the caller closes it when it is done.
func (l layout) socketAddress() (string, *os.File, error) {
	dir, err := os.Open(l.dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/control.sock", dir.Fd()), dir, nil
}

// serve answers commands until the server is shut down.
func (s *supervisor) serve() (*http.Server, error) {
	address, dir, err := s.socketAddress()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	listener, err := net.Listen("unix", address)
	if err != nil {
		return nil, err
	}
	// Its file goes with the state directory; the name it was bound by means nothing later.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	server := &http.Server{Handler: http.HandlerFunc(s.answer)}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

func (s *supervisor) answer(w http.ResponseWriter, r *http.Request) {
	var words []string
	if err := json.NewDecoder(r.Body).Decode(&words); err != nil || len(words) == 0 {
		http.Error(w, "a list of words is expected", http.StatusBadRequest)
		return
	}
	text, err := s.do(r.Context(), words)
	if err != nil {
		w.WriteHeader(http.StatusConflict)
		text = err.Error()
	}
	_, _ = io.WriteString(w, text)
}

// ask sends a command to the cluster in the directory and gives its answer.
func ask(dir string, words ...string) (string, error) {
	client := &http.Client{
		Timeout: upTimeout,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			address, opened, err := layout{dir}.socketAddress()
			if err != nil {
				return nil, err
			}
			defer opened.Close()
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", address)
		}},
	}
	body, err := json.Marshal(words)
	if err != nil {
		return "", err
	}
	response, err := client.Post("http://cluster/", "application/json", strings.NewReader(string(body)))
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) || errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("no cluster runs in %s: `cluster up --dir %s` starts one", dir, dir)
		}
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", errors.New(strings.TrimSpace(string(text)))
	}
	return string(text), nil
}
