package pki

import (
	clientcmd "k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig renders a file by which one user reaches the API server at the given URL.
func (a *Authority) Kubeconfig(server, user string, groups []string) ([]byte, error) {
	pair, err := a.Issue(Request{CommonName: user, Organizations: groups})
	if err != nil {
		return nil, err
	}
	const name = "cluster"
	config := api.NewConfig()
	config.Clusters[name] = &api.Cluster{Server: server, CertificateAuthorityData: a.CertPEM}
	config.AuthInfos[user] = &api.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: user, Namespace: "default"}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}
