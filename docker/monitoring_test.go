package docker_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

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
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
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
	got, err := os.ReadFile(operatorRules)
	require.NoError(t, err)
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
	text, err := os.ReadFile("kubernetes/monitoring/podmonitor.yaml")
	require.NoError(t, err)
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
	rules, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
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
