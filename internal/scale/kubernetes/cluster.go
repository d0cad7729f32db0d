package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// accountFolder is where a pod finds what its service account needs.
const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

const (
	// answerWithin bounds one call, and maxAnswer what is read of its answer.
	answerWithin = 15 * time.Second
	maxAnswer    = 32 << 20
	// maxMessage bounds what is told of an error.
	maxMessage = 300
)

// Cluster is how an API server is reached.
type Cluster struct {
	// Address is its host and port. Default: as the pod's environment says.
	Address string
	// Account is a folder with the files token, ca.crt, and namespace. Default: that of the pod. They
	// are read at each change, since tokens are replaced.
	Account string
}

// cluster is an API server.
type cluster struct {
	base, token, namespace string
	http                   *http.Client
}

func (c Cluster) open(namespace string) (*cluster, error) {
	address := c.Address
	if address == "" {
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			return nil, errors.New("the hub is in no pod: KUBERNETES_SERVICE_HOST is not set")
		}
		address = net.JoinHostPort(host, port)
	}
	read := func(name string) ([]byte, error) {
		return os.ReadFile(filepath.Join(cmp.Or(c.Account, accountFolder), name))
	}
	token, err := read("token")
	if err != nil {
		return nil, fmt.Errorf("the pod has no token of a service account: %w", err)
	}
	ca, err := read("ca.crt")
	if err != nil {
		return nil, fmt.Errorf("the pod has no certificate of its API server: %w", err)
	}
	if namespace == "" {
		text, err := read("namespace")
		if err != nil {
			return nil, fmt.Errorf("which namespace? %w", err)
		}
		namespace = strings.TrimSpace(string(text))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("ca.crt of the service account has no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	return &cluster{"https://" + address, strings.TrimSpace(string(token)), namespace, &http.Client{
		Transport: transport, Timeout: answerWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (k *cluster) pods() string { return "/api/v1/namespaces/" + k.namespace + "/pods" }

// statusError is an answer that is no success.
type statusError struct {
	code    int
	message string
}

// Error implements error.
func (e *statusError) Error() string {
	return fmt.Sprintf("Kubernetes answered with %d: %s", e.code, e.message)
}

func isGone(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.code == http.StatusNotFound
}

// call sends a request, and reads the answer into a value unless that is nil.
func (k *cluster) call(ctx context.Context, method, path, contentType string, body, answer any) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, k.base+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+k.token)
	r.Header.Set("Accept", "application/json")
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := k.http.Do(r)
	if err != nil {
		return fmt.Errorf("Kubernetes: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("Kubernetes: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		var s struct{ Message string }
		_ = json.Unmarshal(text, &s) // what is in front of it may answer with something else
		message := cmp.Or(s.Message, http.StatusText(resp.StatusCode))
		return &statusError{resp.StatusCode, strings.ToValidUTF8(message[:min(len(message), maxMessage)], "?")}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
