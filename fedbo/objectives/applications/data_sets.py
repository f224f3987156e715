"""The data set of `vaccine`."""

from __future__ import annotations

from fedbo.objectives.datasets.inventory import DataFile, DataSet

# None of these addresses could be reached from where this was written. A file from elsewhere with the sha256 is as good.
COVSTRETCH = "https://github.com/wwiecek/covstretch"

DATA_SETS: dict[str, DataSet] = {
    one.name: one
    for one in (
        DataSet(
            name="covid",
            files=(
                DataFile(
                    name="population_by_age_2020.csv",
                    size=25_669,
                    sha256="f9287d571dc3a2dd3dac10632b3b25d737f70a097e9eecedd27669d949b6b868",
                    address=COVSTRETCH,
                    by_hand="a table un_code, location, persons in nine age groups of ten years, of its default_inputs.Rdata",
                ),
                DataFile(
                    name="polymod_contact_matrix.csv",
                    size=1_730,
                    sha256="a179fa3b98d94386f8c26903b060a565e14991c451a792c0cd55af44016ad0e8",
                    address=COVSTRETCH,
                    by_hand="the contact matrix of its default_inputs.Rdata, with a row and a column of age groups",
                ),
                DataFile(
                    name="nab_efficacy_curve.csv",
                    size=3_110,
                    sha256="8daa4b816ba846fde0422b6b5066158bc2aecedc2b5586edd5f00c223d3c02d8",
                    address="https://raw.githubusercontent.com/wwiecek/covstretch/main/data/curve.csv",
                ),
            ),
            licence="none stated for the repository; populations CC BY 3.0 IGO, contacts CC BY 4.0",
            citation="Wiecek, Ahuja, Chaudhuri, Kremer, Gomes, Snyder, Tabarrok, Tan: Testing fractional doses of COVID-19 "
            "vaccines. PNAS 119(8), 2022; United Nations: World Population Prospects 2019; Mossong et al.: Social contacts and "
            "mixing patterns. PLoS Medicine 5(3), 2008; Khoury et al.: Neutralizing antibody levels. Nature Medicine 27, 2021",
        ),
    )
}
