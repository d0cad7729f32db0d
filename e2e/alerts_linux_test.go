package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// smallDisk mounts a disk of some megabytes, in memory. It skips the test where that takes
// rights that the test has not.
func smallDisk(t *testing.T, megabytes int) string {
	t.Helper()
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Skip("a disk in memory takes root: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	return folder
}

// prometheus runs a Prometheus that reads the hub's metrics, with the rules that are
// shipped; only their times are short. alerts returns the names of those
// that fire, nil if Prometheus does not answer.
func (f *fleet) prometheus() (alerts func() []string) {
	f.t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		f.t.Skip("no prometheus here")
	}
	rules := must.Get(os.ReadFile("../docker/prometheus/comfyhub.rules.yml"))(f.t)
	rules = regexp.MustCompile(`(?m)^(\s+for:) .*$`).ReplaceAll(rules, []byte("$1 500ms"))
	folder := f.t.TempDir()
	require.NoError(f.t, os.WriteFile(filepath.Join(folder, "rules.yml"), rules, 0o600))
	config := fmt.Sprintf("global: {scrape_interval: 250ms, evaluation_interval: 250ms}\nrule_files: [rules.yml]\n"+
		"scrape_configs: [{job_name: hub, static_configs: [{targets: [%q]}]}]\n", f.Admin)
	require.NoError(f.t, os.WriteFile(filepath.Join(folder, "prometheus.yml"), []byte(config), 0o600))
	address := must.Get(freeport.Address())(f.t)
	must.Get(f.Start(programs.Spec{Name: "prometheus", Path: path, Args: []string{
		"--config.file", filepath.Join(folder, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(folder, "data"), "--web.listen-address", address,
	}}))(f.t)
	return func() []string {
		resp, err := http.Get("http://" + address + "/api/v1/alerts")
		if err != nil {
			return nil
		}
		defer resp.Body.Close()
		var answer struct {
			Data struct {
				Alerts []struct {
					State  string
					Labels map[string]string
				}
			}
		}
		if json.NewDecoder(resp.Body).Decode(&answer) != nil {
			return nil
		}
		names := []string{}
		for _, a := range answer.Data.Alerts {
			if a.State == "firing" {
				names = append(names, a.Labels["alertname"])
			}
		}
		return names
	}
}

// A real Prometheus with the rules that are shipped tells an operator of a machine that
// dies, a queue that stands, a disk that fills, a Redis and a hub that are gone, and of
// nothing while all is well.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 64)
	redis, address, err := programs.StartRedis(t.TempDir(), "redis", nil, "save \"\"", "appendonly yes", "maxmemory-policy noeviction")
	if err != nil {
		t.Skip("no redis-server here: ", err)
	}
	t.Cleanup(redis.Kill)
	f := newFleet(t, "redis://"+address)
	f.Env = append(f.Env, "COMFYHUB_STORAGE="+disk)
	f.Data = filepath.Join(disk, "data") // the machine's own disk may be nearly full
	f.startHub()
	agent := f.startAgent("gpu", 1)
	f.idle(1)
	alerts := f.prometheus()
	await := func(fires bool, names ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			now := alerts()
			return now != nil && !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(now, name) != fires })
		}, patience, 100*time.Millisecond, "%v", names)
	}
	first := f.submit(0.1, 1)
	f.succeeded([]string{first})
	await(false, "ComfyHubDown", "ComfyHubServerOffline", "ComfyHubNoServers", "ComfyHubQueueStands", "ComfyHubDiskFilling", "ComfyHubRedisAway")

	agent.Kill()
	waits := f.submit(0.1, 2)
	await(true, "ComfyHubServerOffline", "ComfyHubNoServers", "ComfyHubQueueStands")
	require.NoError(t, agent.Restart())
	f.succeeded([]string{first, waits})
	await(false, "ComfyHubServerOffline", "ComfyHubNoServers", "ComfyHubQueueStands")

	filler := filepath.Join(disk, "filler")
	require.NoError(t, os.WriteFile(filler, make([]byte, 60<<20), 0o600))
	await(true, "ComfyHubDiskFilling")
	require.NoError(t, os.Remove(filler))
	await(false, "ComfyHubDiskFilling")

	redis.Kill()
	await(true, "ComfyHubRedisAway")
	require.NoError(t, redis.Restart())
	await(false, "ComfyHubRedisAway")

	f.Hub.Kill()
	await(true, "ComfyHubDown")
}
