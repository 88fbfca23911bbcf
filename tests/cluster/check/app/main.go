// Command app is the small program that the checks run in containers. It uses the standard
// library only: hundreds of it must fit into memory.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	verbs := map[string]func(args []string) error{
		"serve": serve, "exit": exit, "get": get, "whoami": whoAmI, "eat": eat, "say": say,
	}
	if len(os.Args) < 2 || verbs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: app serve|exit|get|whoami|eat|say …")
		os.Exit(2)
	}
	if err := verbs[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers HTTP until SIGTERM. /ready and /live follow the files ready and dead in /tmp.
// With a file as argument, it notes there what befalls it; with "stubborn", SIGTERM changes nothing.
func serve(args []string) error {
	note := func(string) {}
	stubborn := false
	for _, arg := range args {
		if arg == "stubborn" {
			stubborn = true
			continue
		}
		note = func(word string) {
			if f, err := os.OpenFile(arg, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666); err == nil {
				defer f.Close()
				fmt.Fprintln(f, word)
			}
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		name, _ := os.Hostname()
		fmt.Fprintln(w, "hello from", name, os.Getenv("VERSION"))
	})
	http.HandleFunc("/ready", byFile("/tmp/ready", true))
	http.HandleFunc("/live", byFile("/tmp/dead", false))
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	fmt.Println("serving")
	go func() { _ = http.Serve(listener, nil) }()
	for range signals {
		note("term")
		fmt.Println("term")
		if !stubborn {
			return nil
		}
	}
	return nil
}

func byFile(path string, good bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(path); (err == nil) != good {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
}

func exit(args []string) error {
	code, err := strconv.Atoi(strings.Join(args, ""))
	if err != nil {
		return err
	}
	os.Exit(code)
	return nil
}

// get fetches a URL and prints the answer.
func get(args []string) error {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(strings.Join(args, ""))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

// whoAmI asks the API server for Secrets as any in-cluster client would, and prints its answer.
func whoAmI([]string) error {
	token, err := os.ReadFile(serviceAccount + "token")
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(serviceAccount + "ca.crt")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequest(http.MethodGet, "https://"+server+"/api/v1/secrets", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

// eat takes memory, a megabyte at a time, as many as it is told.
func eat(args []string) error {
	megabytes, err := strconv.Atoi(strings.Join(args, ""))
	if err != nil {
		return err
	}
	var eaten [][]byte
	for range megabytes {
		piece := make([]byte, 1<<20)
		for i := 0; i < len(piece); i += 4096 {
			piece[i] = 1
		}
		eaten = append(eaten, piece)
	}
	fmt.Println("ate", len(eaten), "MB")
	return nil
}

// say prints a line every 100 ms, as many as it is told.
func say(args []string) error {
	lines, err := strconv.Atoi(strings.Join(args, ""))
	for i := range lines {
		fmt.Println("line", i)
		time.Sleep(100 * time.Millisecond)
	}
	return err
}
