package docker_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const (
	rulesFile = "prometheus/comfyhub.rules.yml"
	testsFile = "prometheus/comfyhub.test.yml"
	runbook   = "https://github.com/comfyhub/comfyhub/blob/main/docs/alerts.md#"
)

type rule struct {
	Alert, Record, Expr string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) (alerts, recorded []rule) {
	t.Helper()
	text := must.Get(os.ReadFile(rulesFile))(t)
	var file struct{ Groups []struct{ Rules []rule } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				recorded = append(recorded, r)
			} else {
				alerts = append(alerts, r)
			}
		}
	}
	require.NotEmpty(t, alerts)
	return alerts, recorded
}

// Each recorded series has a test, and the page of the metrics says what it means.
func TestRecordedSeriesAreExplained(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../docs/metrics.md"))(t)
	tests := must.Get(os.ReadFile(testsFile))(t)
	_, recorded := rules(t)
	require.NotEmpty(t, recorded)
	for _, r := range recorded {
		require.Contains(t, string(page), "`"+r.Record+"`")
		require.Contains(t, string(tests), r.Record, "it is right with two hubs")
	}
}

// Each alert says what it means, how bad it is and what to do, and has a test; the page has
// no others.
func TestAlertsAreExplained(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../docs/alerts.md"))(t)
	tests := must.Get(os.ReadFile(testsFile))(t)
	all, _ := rules(t)
	for _, r := range all {
		require.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["description"], r.Alert)
		require.Equal(t, runbook+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
		require.Contains(t, string(page), "\n### "+r.Alert+"\n")
		require.Contains(t, string(tests), "alertname: "+r.Alert+"}", "it is silent in a healthy fleet")
		require.Contains(t, string(tests), "- name: "+r.Alert+"\n", "it fires")
	}
	require.Equal(t, len(all), strings.Count(string(page), "\n### "), "the page explains each once")
}

func TestRulesWithPromtool(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("no promtool here")
	}
	for _, args := range [][]string{
		{"check", "rules", rulesFile}, {"check", "config", "prometheus.yml"}, {"test", "rules", testsFile},
	} {
		out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
		require.NoError(t, err, "promtool %v: %s", args, out)
	}
}

// Each dashboard can be loaded, and no panel is on another one.
func TestDashboards(t *testing.T) {
	t.Parallel()
	files := must.Get(filepath.Glob("grafana/dashboards/*.json"))(t)
	require.NotEmpty(t, files)
	uids := map[string]string{}
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		var d struct {
			UID, Title string
			Panels     []struct {
				ID      int
				Title   string
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ Expr string }
			}
		}
		require.NoError(t, json.Unmarshal(text, &d), file)
		require.NotEmpty(t, d.UID, file)
		require.Empty(t, uids[d.UID], "%s has the uid of %s", file, uids[d.UID])
		uids[d.UID] = file
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			require.False(t, ids[p.ID], "%s: two panels %d", file, p.ID)
			ids[p.ID] = true
			require.NotEmpty(t, p.Targets, "%s: %s", file, p.Title)
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					require.Empty(t, taken[at], "%s: %s is on %s", file, p.Title, taken[at])
					taken[at] = p.Title
				}
			}
			require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		}
	}
}

// What all hubs report alike is not added up, and each panel of the hub's dashboard says what it shows.
func TestHubDashboardWithSeveralHubs(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("grafana/dashboards/hub.json"))(t)
	var d struct {
		Templating struct{ List []struct{ Name string } }
		Panels     []struct {
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	require.Len(t, d.Templating.List, 3, "a data source, hubs and GPUs can be chosen")
	alike := regexp.MustCompile(`sum( by \([^)]*\))? ?\((comfyhub_queue_depth|comfyhub_jobs_running|comfyhub_jobs_paused|comfyhub_gpu_vram)`)
	var exprs []map[string]string
	instances := regexp.MustCompile(`sum by \(state\) \(comfyhub_instances`)
	for _, p := range d.Panels {
		require.NotEmpty(t, p.Description, p.Title)
		for _, target := range p.Targets {
			require.NotRegexp(t, alike, target.Expr, p.Title)
			require.NotRegexp(t, instances, target.Expr, p.Title)
			require.Contains(t, target.Expr, `instance=~"$hub"`, p.Title)
			exprs = append(exprs, map[string]string{"record": "x:" + strconv.Itoa(len(exprs)), "expr": target.Expr})
		}
	}
	if _, err := exec.LookPath("promtool"); err != nil {
		return
	}
	// As recorded series, of which promtool reads the expressions.
	file := filepath.Join(t.TempDir(), "panels.yml")
	text = must.Get(yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": exprs}}}))(t)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", file).CombinedOutput()
	require.NoError(t, err, string(out))
}

var update = flag.Bool("update", false, "write the rules for the Prometheus Operator")

const (
	operatorRules = "kubernetes/monitoring/rules.yaml"
	operatorHead  = `# Written by go test ./docker -run TestRulesOfTheOperator -update, from docker/prometheus/comfyhub.rules.yml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: comfyhub
spec:
`
)

// The Prometheus Operator gets the same rules as everybody else.
func TestRulesOfTheOperator(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(rulesFile))(t)
	_, groups, found := strings.Cut(string(text), "\ngroups:\n")
	require.True(t, found)
	wanted := operatorHead + "  groups:\n"
	for line := range strings.Lines(groups) {
		if strings.TrimSpace(line) != "" {
			line = "  " + line
		}
		wanted += line
	}
	if *update {
		require.NoError(t, os.WriteFile(operatorRules, []byte(wanted), 0o600))
	}
	got := must.Get(os.ReadFile(operatorRules))(t)
	require.Equal(t, wanted, string(got))
	var plain struct{ Groups []any }
	var object struct{ Spec struct{ Groups []any } }
	require.NoError(t, yaml.Unmarshal(text, &plain))
	require.NoError(t, yaml.Unmarshal(got, &object))
	require.Equal(t, plain.Groups, object.Spec.Groups)
}

// What is scraped is a port that the hub's pods have, and its job is the one that the alerts look at.
func TestPodMonitor(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("kubernetes/monitoring/podmonitor.yaml"))(t)
	var monitor struct {
		Spec struct {
			Selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			PodMetricsEndpoints []struct {
				Port        string
				Relabelings []struct {
					TargetLabel string `yaml:"targetLabel"`
					Replacement string
				}
			} `yaml:"podMetricsEndpoints"`
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &monitor))
	rules := must.Get(os.ReadFile(rulesFile))(t)
	for _, e := range monitor.Spec.PodMetricsEndpoints {
		var ports []string
		for _, o := range objects(t) {
			if o.Spec.Template.Metadata.Labels["app"] != monitor.Spec.Selector.MatchLabels["app"] {
				continue
			}
			for _, c := range o.Spec.Template.Spec.Containers {
				for _, p := range c.Ports {
					ports = append(ports, p.Name)
				}
			}
		}
		require.Contains(t, ports, e.Port)
		require.Equal(t, "job", e.Relabelings[0].TargetLabel)
		require.Contains(t, string(rules), `up{job="`+e.Relabelings[0].Replacement+`"}`)
	}
	require.NotEmpty(t, monitor.Spec.PodMetricsEndpoints)
}
