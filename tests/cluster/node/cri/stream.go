package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"
)

const (
	// headerTimeout bounds how long a client of the streaming server may think.
	headerTimeout = 30 * time.Second
	dialTimeout   = 5 * time.Second
)

// streamingServer carries exec, attach and port-forward between the kubelet and containers. It
// is on loopback, and each session's address is a secret of the kubelet's.
type streamingServer struct {
	library
	http *http.Server
}

func newStreamingServer(r *Runtime) (*streamingServer, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for exec and port-forward: %w", err)
	}
	base := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	lib, err := newLibrary(base, sessions{r})
	if err != nil {
		return nil, fmt.Errorf("serve exec and port-forward: %w", err)
	}
	s := &streamingServer{library: lib, http: &http.Server{Handler: lib, ReadHeaderTimeout: headerTimeout}}
	go s.http.Serve(listener) //nolint:errcheck // It ends with the process.
	return s, nil
}

// Exec tells the kubelet where to run a command interactively.
func (r *Runtime) Exec(_ context.Context, request *cri.ExecRequest) (*cri.ExecResponse, error) {
	return r.streaming.GetExec(request)
}

// Attach tells the kubelet where to attach to a container.
func (r *Runtime) Attach(_ context.Context, request *cri.AttachRequest) (*cri.AttachResponse, error) {
	return r.streaming.GetAttach(request)
}

// PortForward tells the kubelet where to reach a pod's ports.
func (r *Runtime) PortForward(_ context.Context, request *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	return r.streaming.GetPortForward(request)
}

// sessions is what the streaming server does with a client's streams.
type sessions struct{ r *Runtime }

func (s sessions) Exec(ctx context.Context, id string, args []string, in io.Reader, out, errs io.WriteCloser, terminal bool, sizes <-chan terminalSize) error {
	code, err := s.r.exec(ctx, id, args, stdio{in: in, out: writer(out), err: writer(errs), terminal: terminal, sizes: sizes})
	if err == nil && code != 0 {
		err = utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return err
}

// writer keeps a nil from becoming an interface that is not nil.
func writer(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}

func (s sessions) Attach(ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, _ bool, sizes <-chan terminalSize) error {
	c, err := s.r.container(id)
	if err != nil {
		return err
	}
	if c.log == nil {
		return errors.New("the container has not been started")
	}
	defer c.log.attach(writer(out), writer(errs))()
	if in != nil && c.input != nil {
		go c.input.copyFrom(in, c.config.GetStdinOnce())
	}
	if c.input != nil && c.input.terminal {
		go follow(c.input.to, sizes)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	return nil
}

func (s sessions) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	pod, err := s.r.sandbox(id)
	if err != nil {
		return err
	}
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := s.r.dialPod(dialing, pod, strconv.Itoa(int(port)))
	if err != nil {
		return fmt.Errorf("connect with port %d of the pod: %w", port, err)
	}
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		copyTo(conn, stream)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}()
	// When the pod has said all, whatever the client still sends has nobody to hear it.
	copyTo(stream, conn)
	return nil
}

func (r *Runtime) dialPod(ctx context.Context, pod *sandbox, port string) (net.Conn, error) {
	const loopback = "127.0.0.1"
	switch network := r.networkOf(pod); {
	case network != nil:
		return network.Dial(ctx, "tcp4", net.JoinHostPort(loopback, port))
	case pod.ip != "":
		return (&net.Dialer{}).DialContext(ctx, "tcp4", net.JoinHostPort(pod.ip, port))
	default:
		return (&net.Dialer{}).DialContext(ctx, "tcp4", net.JoinHostPort(loopback, port))
	}
}
