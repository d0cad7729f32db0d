package programs

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
)

// StartRedis starts redis-server on a free port, with a folder of its own below dir,
// and returns its address. The settings are lines of its configuration file: a file,
// because a sentinel rewrites its own. It fails if no redis-server is on the PATH.
func StartRedis(dir, name string, flags []string, settings ...string) (*Program, string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "", err
	}
	addr, err := freeport.Address()
	if err != nil {
		return nil, "", err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, "", err
	}
	folder := filepath.Join(dir, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, "", err
	}
	file := filepath.Join(folder, "redis.conf")
	text := strings.Join(append([]string{"bind " + host, "port " + port, "dir " + folder}, settings...), "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, "", err
	}
	p, err := Start(Spec{Name: name, Path: path, Dir: dir, Args: append([]string{file}, flags...)})
	return p, addr, err
}
