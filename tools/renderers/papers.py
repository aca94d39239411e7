"""The papers whose attacks and defences are built here, by which docs/register.md names them."""

from __future__ import annotations

from typing import NamedTuple


class Paper(NamedTuple):
    """A publication: title, authors by last name, year, and where it appeared."""

    title: str
    authors: str
    year: int
    where: str


ID2GRAPH = Paper(
    "Eliminating Label Leakage in Tree-Based Vertical Federated Learning",
    "Takahashi, Liu, Liu",
    2023,
    "arXiv 2307.10318",
)
PIVODL = Paper(
    "PIVODL: Privacy-Preserving Vertical Federated Learning Over Distributed Labels",
    "Zhu, Wang, Jin, Liang",
    2023,
    "IEEE Transactions on Artificial Intelligence; arXiv 2108.11444",
)
REVERSE_SUM = Paper(
    "Practical Privacy Attacks on Vertical Federated Learning",
    "Weng, Zhang, Ma, Xue, Wei, Ji, Zong",
    2020,
    "arXiv 2011.09290",
)
SPLIT_SCORING = Paper(
    "Label Leakage and Protection in Two-party Split Learning",
    "Li, Sun, Yang, Gao, Zhang, Xie, Smith, Wang",
    2022,
    "ICLR; arXiv 2102.08504",
)
LABEL_INFERENCE = Paper(
    "Label Inference Attacks Against Vertical Federated Learning",
    "Fu, Zhang, Ji, Chen, Wu, Guo, Zhou, Liu, Wang",
    2022,
    "USENIX Security",
)
MODEL_INVERSION = Paper("Model Inversion Attacks Against Collaborative Inference", "He, Zhang, Lee", 2019, "ACSAC")
SENSFL = Paper(
    "SensFL: Privacy-Preserving Vertical Federated Learning with Sensitive Regularization",
    "Zhang, Liu, Xu, Hu, Dai, Cai, Wang",
    2024,
    "Computer Modeling in Engineering & Sciences 142(1)",
)
NOISY_LABELS = Paper(
    "Deep Learning with Label Differential Privacy",
    "Ghazi, Golowich, Kumar, Manurangsi, Zhang",
    2021,
    "NeurIPS; arXiv 2102.06062",
)
SECUREBOOST = Paper(
    "SecureBoost: A Lossless Federated Learning Framework",
    "Cheng, Fan, Jin, Liu, Chen, Papadopoulos, Yang",
    2021,
    "IEEE Intelligent Systems; arXiv 1901.08755",
)
DIMIP = Paper(
    "Robust and IP-Protecting Vertical Federated Learning against Unexpected Quitting of Parties",
    "Sun, Du, Dai, Baghersalimi, Amirshahi, Atienza, Chen",
    2023,
    "arXiv 2303.18178",
)
DP_SGD = Paper(
    "Deep Learning with Differential Privacy",
    "Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang",
    2016,
    "ACM CCS",
)
FED_EINI = Paper(
    "Fed-EINI: An Efficient and Interpretable Inference Framework for Decision Tree Ensembles in Vertical Federated "
    "Learning",
    "Chen, Zhou, Guan, Yang, Fan, Wang, Wang",
    2021,
    "IEEE Big Data; arXiv 2105.09540",
)
SECURE_AGGREGATION = Paper(
    "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
    "Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth",
    2017,
    "ACM CCS",
)
LIRA = Paper(
    "Membership Inference Attacks From First Principles",
    "Carlini, Chien, Nasr, Song, Terzis, Tramèr",
    2022,
    "IEEE S&P; arXiv 2112.03570",
)
PHARMACOGENETICS = Paper(
    "Privacy in Pharmacogenetics: An End-to-End Case Study of Personalized Warfarin Dosing",
    "Fredrikson, Lantz, Jha, Lin, Page, Ristenpart",
    2014,
    "USENIX Security",
)

#: Attack → its name in its paper, and the paper; without those of this project.
PUBLISHED: dict[str, tuple[str, Paper]] = {
    "cl": ("CL", ID2GRAPH),
    "uni": ("UNI", ID2GRAPH),
    "uni+cl": ("UNI+CL", ID2GRAPH),
    "id2graph": ("ID2Graph", ID2GRAPH),
    "id2graph-chunked": ("ID2Graph with chunks (Algorithm 3)", ID2GRAPH),
    "label_guess": ("guess by leaf weights (Definition 9)", PIVODL),
    "differential": ("differential attack (Theorem 2)", PIVODL),
    "norm-scoring": ("norm-based scoring", SPLIT_SCORING),
    "direction-scoring": ("direction-based scoring", SPLIT_SCORING),
    "completion": ("passive model completion", LABEL_INFERENCE),
    "attributes": ("attribute inference (Equation 7)", SENSFL),
    "decode": ("inverse network (section 4.3)", MODEL_INVERSION),
    "match": ("reconstruction by a surrogate (Equations 5 and 6)", SENSFL),
    "match-exact": ("white-box inversion", MODEL_INVERSION),
    "reverse-sum": ("reverse sum attack", REVERSE_SUM),
    "membership": ("likelihood ratio attack, LiRA (Algorithm 1)", LIRA),
    "member-columns": ("model inversion", PHARMACOGENETICS),
}
